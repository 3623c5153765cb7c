"""Servers over journals: queues by the memcache protocol (`kestrel`), copies of sej journals by gRPC (`hub`)."""
