"""benchmarks/lease.py: what a lease sends, what runs there, and what comes back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILDER = """
import pathlib, sys
action, parts, out = sys.argv[1:]
assert action == "assemble"
pathlib.Path(out).mkdir()
pathlib.Path(out, "all").write_bytes(b"".join(part.read_bytes() for part in sorted(pathlib.Path(parts).rglob("*.png"))))
"""
# In place of benchmarks/gpu.py: it measures at once, and says what it was given.
MEASURES = """
import json, os, pathlib, sys
words = sys.argv[1:]
state, data = (pathlib.Path(words[words.index(name) + 1]) for name in ("--state", "--data"))
run = state / "runs/step/search-0"
(run / "trainings/finetuned/training").mkdir(parents=True)
(state / "results").mkdir()
(run / "run.json").write_text(json.dumps({"command": f"aacp prune --data cifar10:{data} --run {run}"}))
(run / "trainings/finetuned/evaluation.json").write_text("{}")
(run / "trainings/finetuned/training/log.jsonl").write_text("{}\\n" * 30)
(run / "weights.safetensors").write_bytes(b"large")
base = pathlib.Path("benchmarks/results/bases/net/weights.safetensors").read_bytes().decode()
for epochs in (10, 30):
    result = {
        "command": f"search_pays.py --data {data.name} --runs step", "epochs": epochs,
        "rows": [{"arm": "search", "seed": 0}], "base": base, "words": words,
        "priority": os.environ.get("CUDA_MPS_CLIENT_PRIORITY"),
    }
    (state / f"results/after_{epochs}.json").write_text(json.dumps(result))
"""


@pytest.mark.usefixtures("among_scripts")
def test_a_lease_sends_all_data_and_brings_results_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import lease

    checkout = tmp_path / "checkout"
    files = {
        checkout / "docs/page.md": "page",
        checkout / "examples/one.py": "",
        checkout / "src/data/read.py": "module",
        checkout / "benchmarks/gpu.py": MEASURES,
        checkout / "benchmarks/results/known.json": "{}",
        checkout / "benchmarks/results/bases/net/weights.safetensors": "w" * 1000,
        checkout / ".gitignore": "/data/",
        tmp_path / "parts/1/one.png": "1" * 1500,
        tmp_path / "parts/2/two.png": "2" * 1500,
        tmp_path / "builder/build.py": BUILDER,
        tmp_path / "teacher.pth": "t" * 10,
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    monkeypatch.setattr(lease, "ROOT", checkout)
    monkeypatch.setattr(lease, "PIECE", 5000)
    monkeypatch.setattr(lease, "LEASE", tmp_path / "home/lease")
    (tmp_path / "home").mkdir()

    (checkout / "docs/page.md").write_text("changed")
    with pytest.raises(SystemExit, match="Commit them first"):
        lease.prepare(tmp_path / "parts", tmp_path / "builder/build.py", [])
    (checkout / "docs/page.md").write_text("page")

    lease.prepare(tmp_path / "parts", tmp_path / "builder/build.py", [tmp_path / "teacher.pth"])
    pieces = sorted(int(folder.name) for folder in (checkout / "data").iterdir())
    assert len(pieces) > 2
    left = {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}
    assert {path for path in left if not path.startswith((".git", "data"))} == {
        *("benchmarks/gpu.py", "benchmarks/results/known.json", "src/data/read.py")
    }
    for piece in pieces:
        lease.bring(str(piece))
    assert (tmp_path / "home/lease/cifar10/all").read_text() == "1" * 1500 + "2" * 1500
    assert (tmp_path / "home/lease/small/teacher.pth").read_text() == "t" * 10
    assert (tmp_path / "home/lease/aacp/src/data/read.py").read_text() == "module"
    lease.restore()
    assert all(file.read_text() == text for file, text in files.items())

    monkeypatch.setenv("LEASE_SECONDS", "1000")
    monkeypatch.setattr(sys, "argv", ["lease.py", "begin", "first", "--low", "plan-a", "plan-b@0"])
    lease.main()
    lease.look(60, tmp_path / "out", with_weights=False)
    assert "step/search-0: 30 epochs" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out/first").iterdir()} == {"measured.tgz", "weights.tar.000"}
    monkeypatch.setattr(lease, "SMALL", 4)
    lease.look(60, tmp_path / "less", with_weights=False)
    assert [path.name for path in (tmp_path / "less/first").iterdir()] == ["measured.tgz"]
    lease.record(tmp_path / "out")
    results = checkout / "benchmarks/results"
    assert {path.name for path in results.iterdir()} == {
        *("after_10.json", "after_30.json", "after_30", "bases", "known.json")
    }
    assert {path.name for path in (results / "after_30/search-0").iterdir()} == {
        *("evaluation.json", "run.json", "training-log.jsonl")
    }
    run = json.loads((results / "after_30/search-0/run.json").read_text())
    assert run == {"command": "aacp prune --data cifar10:cifar10 --run runs/step/search-0"}
    result = json.loads((results / "after_30.json").read_text())
    assert (result["base"], result["priority"]) == ("w" * 1000, "1")
    assert result["words"][:3] == ["plan-a", "plan-b@0", "--limit"]
    assert "--together" in result["words"]
    known = subprocess.run(
        [sys.executable, ROOT / "benchmarks/gpu.py", "--help"], capture_output=True, text=True
    ).stdout
    assert {word for word in result["words"] if word.startswith("--")} <= set(re.findall(r"--\w+", known))
    limit = float(result["words"][result["words"].index("--limit") + 1])
    assert 1000 - lease.STARTING - lease.ENDING - 60 < limit <= 1000 - lease.STARTING - lease.ENDING
