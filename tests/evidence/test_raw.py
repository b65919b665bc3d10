"""Raw output agrees with other raw output, and names nothing of the machine that wrote it."""

from __future__ import annotations

import re

from evidence.raw import RESULTS, raw


def test_networks_before_their_training_are_those_of_search_pays() -> None:
    """They have the same structures and the accuracy on the hold-out that the search estimated."""
    for file in RESULTS.glob("untrained_*.json"):
        found = raw(file.name)
        own = {(row["arm"], row["seed"]): row for row in raw(found["result"])["rows"]}
        for row in found["rows"]:
            assert row["counts"] == own.pop((row["arm"], row["seed"]))["counts"]
            if "repaired" not in row["arm"]:  # a search repairs by another form
                assert abs(row["estimate"] - row["holdout"]) < 0.005
        seeds = {row["seed"] for row in found["rows"]}  # trainings of other seeds may have come later
        assert {arm for arm, seed in own if seed in seeds} <= {"scratch"}


def test_results_contain_no_paths_of_a_machine() -> None:
    """A path that begins at the root or at home names a machine that a reader does not have."""
    path = re.compile(rb"(?<![\w.:/<~\\)}\]])(?:/(?:root|home|tmp|work|mnt|opt|usr|var|data|Users)\b/?|~/)[\w./-]*")
    found = {}
    for file in sorted(RESULTS.rglob("*")):
        if file.is_file() and file.suffix not in (".png", ".safetensors", ".tgz"):
            paths = path.findall(file.read_bytes())
            if paths:
                found[str(file.relative_to(RESULTS))] = paths[:3]
    assert found == {}
