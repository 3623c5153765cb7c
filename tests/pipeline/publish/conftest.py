"""The S3 server of the tests of publishers."""

from tests.support.s3 import s3_server

__all__ = ["s3_server"]
