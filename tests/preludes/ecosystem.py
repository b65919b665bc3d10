"""What docs/ecosystem.md assumes: a trained network, its data, a small plan, and stand-ins for the loggers."""

from contextlib import contextmanager
from types import ModuleType

import aacp
from preludes.small import loaders, trained_network

model = trained_network()
data = aacp.Data.of(*loaders(), holdout=0.2)
plan = aacp.Plan(
    evaluations=3, recipe=aacp.Recipe(epochs=1, batch_size=32, lr=0.02), calibration_images=64, export=False
)
logged = {"mlflow": [], "wandb": [], "tensorboard": []}  # what each logger received: (name, value, step)
artefacts = []


class Run:
    """A run of Weights & Biases."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def define_metric(self, name, step_metric):
        assert name.endswith("/*")

    def log(self, values):
        (step,) = [value for name, value in values.items() if name.endswith("/step")]
        logged["wandb"] += [(name, value, step) for name, value in values.items() if not name.endswith("/step")]


class SummaryWriter:
    """The writer of TensorBoard."""

    def __init__(self, folder):
        self.folder = folder

    def add_scalar(self, name, value, step):
        logged["tensorboard"].append((name, value, step))

    def close(self):
        self.folder = None


@contextmanager
def start_run():
    yield


mlflow = ModuleType("mlflow")
mlflow.start_run = start_run
mlflow.log_metrics = lambda values, step: logged["mlflow"].extend((*pair, step) for pair in values.items())
mlflow.log_artifact = artefacts.append
wandb = ModuleType("wandb")
wandb.init = lambda project: Run()
tensorboard = ModuleType("torch.utils.tensorboard")
tensorboard.SummaryWriter = SummaryWriter
stand_ins = {"mlflow": mlflow, "wandb": wandb, "torch.utils.tensorboard": tensorboard}
