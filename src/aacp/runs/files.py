"""The names of the files and folders of a run folder; docs/formats.md says what each holds."""

from __future__ import annotations

RUN = "run.json"
GRAPH = "graph.json"
STRUCTURE = "structure.json"
FINALISTS = "finalists.json"  # the finalists of a search, and their scores after short trainings
EVALUATION = "evaluation.json"
RECOVERY = "recovery.json"
EXPORT = "export.json"
ARTEFACT = "pruned.safetensors"  # the pruned network
TRAININGS = "trainings"  # the folder inside the run folder that holds a folder for each training
TRAINING_REQUEST = "training.json"  # the request of a training, inside its folder
TRAINING = "training"  # the log and the checkpoints of a training, inside its folder
LOG = "log.jsonl"  # the log of a training, inside that folder
STATE = "training.safetensors"  # the state of a training between two epochs, inside that folder
WEIGHTS = "weights.safetensors"  # the trained weights, inside that folder
HISTORY = "history.jsonl"  # every evaluation of a search
CONFIRMED = "confirmed"  # the folder of the structures of a search on few images that were scored on all
CHECKPOINT = "search.json"  # the state of a search
TABLE = "latency.json"  # the latency table that a search uses
STEPS = "steps.json"  # the pruning steps that were found by timing
CHECKS = "checks.jsonl"  # the candidates that were measured end to end
CHECK_FOLDER = "check"  # both networks and the program that times them on another device, inside a training's folder
DEVICE_CHECK = "device.json"  # what that program found
