"""All golden journals below one directory, whole and damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.appendfile.samples import SCENARIOS
from tests.kestrel import samples as kestrel
from tests.sej.samples import GOLDEN
from tests.sej.test_golden import DAMAGED, OTHERS, SHARDED, TORN, WHOLE
from tests.yeltsin.samples import GOLDEN as DATABASES


def write_golden(root: Path) -> None:
    """Journals of each format that has golden files."""
    for name in [*WHOLE, *TORN, *DAMAGED, *OTHERS, *SHARDED]:
        shutil.copytree(GOLDEN / name / ("root" if name in SHARDED else "sej"), root / "golden" / name)
    for number, scenario in enumerate(kestrel.FACTS["scenarios"]):
        kestrel.write(root / "queues" / f"golden-{number}", *kestrel.scenario_operations(scenario))
    (root / "databases").mkdir()
    for path in DATABASES.glob("*.jrnl"):
        shutil.copy(path, root / "databases")
    for number, scenario in enumerate(SCENARIOS.values()):
        for file in scenario["files"]:
            if "hex" in file:  # not those of megabytes
                path = root / "segments" / str(number) / file["name"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes.fromhex(file["hex"]))
