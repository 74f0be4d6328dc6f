"""An audit on a Ray cluster has the same results as on this machine, also when a node of the cluster dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

from ray.cluster_utils import Cluster  # noqa: E402  # what is skipped above without it

from irscope.tools.audit.dataset import Dataset  # noqa: E402
from irscope.tools.audit.engines import Engine  # noqa: E402
from irscope.tools.audit.run import Tally, audit  # noqa: E402
from irscope.tools.audit.worker import Setup  # noqa: E402
from tests.tools.audit_models import write_models  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]

COUNT = 1_500


@pytest.fixture
def cluster() -> Iterator[Any]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


def test_the_results_are_those_of_this_machine_though_a_node_dies(cluster: Any, tmp_path: Path) -> None:
    write_models(tmp_path / "m", COUNT, seed=7)
    died_at: list[int] = []

    def told(tally: Tally, engine: Engine) -> None:
        if tally.analysed > 100 and not died_at:
            died_at.append(tally.analysed)
            cluster.remove_node(cluster.second, allow_graceful=False)

    setup = Setup(("h200", "l4"))
    audit([str(tmp_path / "m")], tmp_path / "ray", setup, engine="ray", jobs=2, told=told)
    audit([str(tmp_path / "m")], tmp_path / "local", setup, jobs=2)
    assert died_at and died_at[0] < COUNT - 200
    assert rows(tmp_path / "ray") == rows(tmp_path / "local")


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    found = Dataset(folder).read().to_pylist()
    assert len(found) == COUNT == len({row["uri"] for row in found})
    return {row["uri"]: {key: value for key, value in row.items() if key != "cpu_seconds"} for row in found}
