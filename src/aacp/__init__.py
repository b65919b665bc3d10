"""aacp: automatic channel pruning of convolutional networks.

Names are imported when first used, so that `aacp --help` need not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aacp.artefact import load as load
    from aacp.artefact import save as save
    from aacp.channels import ChannelGraph as ChannelGraph
    from aacp.channels import ChannelGroup as ChannelGroup
    from aacp.channels import Layer as Layer
    from aacp.cost.analytic import Cost as Cost
    from aacp.cost.analytic import activation_bytes as activation_bytes
    from aacp.cost.analytic import macs as macs
    from aacp.cost.analytic import params as params
    from aacp.cost.analytic import weight_bytes as weight_bytes
    from aacp.cost.budget import Budget as Budget
    from aacp.cost.budget import Limit as Limit
    from aacp.cost.budget import cost_of as cost_of
    from aacp.cost.latency import LatencyTable as LatencyTable
    from aacp.cost.pieces import Setting as Setting
    from aacp.data.batches import Batches as Batches
    from aacp.data.images import Images as Images
    from aacp.data.scores import accuracy as accuracy
    from aacp.data.splits import Data as Data
    from aacp.errors import AACPError as AACPError
    from aacp.errors import BrokenArtefact as BrokenArtefact
    from aacp.errors import CorruptPicture as CorruptPicture
    from aacp.errors import DeviceMismatch as DeviceMismatch
    from aacp.errors import Diverged as Diverged
    from aacp.errors import ExportFailed as ExportFailed
    from aacp.errors import GraphMismatch as GraphMismatch
    from aacp.errors import InfeasibleBudget as InfeasibleBudget
    from aacp.errors import InvalidData as InvalidData
    from aacp.errors import InvalidExample as InvalidExample
    from aacp.errors import InvalidOption as InvalidOption
    from aacp.errors import InvalidScore as InvalidScore
    from aacp.errors import InvalidStructure as InvalidStructure
    from aacp.errors import InvalidWeights as InvalidWeights
    from aacp.errors import MissingPackage as MissingPackage
    from aacp.errors import NothingToPrune as NothingToPrune
    from aacp.errors import NothingToReport as NothingToReport
    from aacp.errors import RunLocked as RunLocked
    from aacp.errors import RunMismatch as RunMismatch
    from aacp.errors import UnknownData as UnknownData
    from aacp.errors import UnknownModel as UnknownModel
    from aacp.errors import UntraceableModel as UntraceableModel
    from aacp.errors import WorkerFailed as WorkerFailed
    from aacp.estimate.distributed import search_on as search_on
    from aacp.estimate.inheritance import inherit as inherit
    from aacp.estimate.psae import PSAE as PSAE
    from aacp.estimate.ranking import Ranking as Ranking
    from aacp.estimate.ranking import ranking as ranking
    from aacp.estimate.recalibration import recalibrate as recalibrate
    from aacp.export import Exported as Exported
    from aacp.export import export_onnx as export_onnx
    from aacp.folder import RunFolder as RunFolder
    from aacp.graph.surgery import shrink as shrink
    from aacp.graph.tracing import trace as trace
    from aacp.graph.tracing import verify as verify
    from aacp.header import Artefact as Artefact
    from aacp.latency.checking import Checked as Checked
    from aacp.latency.checking import check_latency as check_latency
    from aacp.latency.deployment import Deployment as Deployment
    from aacp.latency.deployment import setting_here as setting_here
    from aacp.latency.measuring import measure_latency as measure_latency
    from aacp.latency.stepping import discovered_steps as discovered_steps
    from aacp.pipeline.plan import Plan as Plan
    from aacp.pipeline.pruned import Pruned as Pruned
    from aacp.pipeline.pruning import prune as prune
    from aacp.pipeline.sweep import Sweep as Sweep
    from aacp.pipeline.sweep import sweep as sweep
    from aacp.report.page import write_report as write_report
    from aacp.runtimes import time_networks as time_networks
    from aacp.search.evolution import Evolution as Evolution
    from aacp.search.evolution import ImprovedDifferentialEvolution as ImprovedDifferentialEvolution
    from aacp.search.guided import Guidance as Guidance
    from aacp.search.guided import GuidedEvolution as GuidedEvolution
    from aacp.search.history import Candidate as Candidate
    from aacp.search.history import History as History
    from aacp.search.loop import run_search as run_search
    from aacp.search.methods import searcher as searcher
    from aacp.search.rescaling import rescale as rescale
    from aacp.space import SearchSpace as SearchSpace
    from aacp.structure import Structure as Structure
    from aacp.timing import Spread as Spread
    from aacp.timing import Timing as Timing
    from aacp.timing import interleaved as interleaved
    from aacp.timing import speedup as speedup
    from aacp.train.launching import run_in_processes as run_in_processes
    from aacp.train.loop import Trained as Trained
    from aacp.train.loop import finetune as finetune
    from aacp.train.loop import fit as fit
    from aacp.train.loop import train_from_scratch as train_from_scratch
    from aacp.train.recipe import Recipe as Recipe
    from aacp.zoo.data import load_data as load_data
    from aacp.zoo.folders import ImageFolder as ImageFolder
    from aacp.zoo.imports import import_torchvision as import_torchvision
    from aacp.zoo.models import build_model as build_model
    from aacp.zoo.models import example_input as example_input
    from aacp.zoo.weights import load_weights as load_weights

_PLACES = {
    "AACPError": "aacp.errors",
    "Artefact": "aacp.header",
    "Batches": "aacp.data.batches",
    "BrokenArtefact": "aacp.errors",
    "Budget": "aacp.cost.budget",
    "Candidate": "aacp.search.history",
    "ChannelGraph": "aacp.channels",
    "ChannelGroup": "aacp.channels",
    "Checked": "aacp.latency.checking",
    "CorruptPicture": "aacp.errors",
    "Cost": "aacp.cost.analytic",
    "Data": "aacp.data.splits",
    "Deployment": "aacp.latency.deployment",
    "DeviceMismatch": "aacp.errors",
    "Diverged": "aacp.errors",
    "Evolution": "aacp.search.evolution",
    "ExportFailed": "aacp.errors",
    "Exported": "aacp.export",
    "GraphMismatch": "aacp.errors",
    "Guidance": "aacp.search.guided",
    "GuidedEvolution": "aacp.search.guided",
    "History": "aacp.search.history",
    "ImageFolder": "aacp.zoo.folders",
    "Images": "aacp.data.images",
    "ImprovedDifferentialEvolution": "aacp.search.evolution",
    "InfeasibleBudget": "aacp.errors",
    "InvalidData": "aacp.errors",
    "InvalidExample": "aacp.errors",
    "InvalidOption": "aacp.errors",
    "InvalidScore": "aacp.errors",
    "InvalidStructure": "aacp.errors",
    "InvalidWeights": "aacp.errors",
    "LatencyTable": "aacp.cost.latency",
    "Layer": "aacp.channels",
    "Limit": "aacp.cost.budget",
    "MissingPackage": "aacp.errors",
    "NothingToPrune": "aacp.errors",
    "NothingToReport": "aacp.errors",
    "PSAE": "aacp.estimate.psae",
    "Plan": "aacp.pipeline.plan",
    "Pruned": "aacp.pipeline.pruned",
    "Ranking": "aacp.estimate.ranking",
    "Recipe": "aacp.train.recipe",
    "RunFolder": "aacp.folder",
    "RunLocked": "aacp.errors",
    "RunMismatch": "aacp.errors",
    "SearchSpace": "aacp.space",
    "Setting": "aacp.cost.pieces",
    "Spread": "aacp.timing",
    "Structure": "aacp.structure",
    "Sweep": "aacp.pipeline.sweep",
    "Timing": "aacp.timing",
    "Trained": "aacp.train.loop",
    "UnknownData": "aacp.errors",
    "UnknownModel": "aacp.errors",
    "UntraceableModel": "aacp.errors",
    "WorkerFailed": "aacp.errors",
    "accuracy": "aacp.data.scores",
    "activation_bytes": "aacp.cost.analytic",
    "build_model": "aacp.zoo.models",
    "check_latency": "aacp.latency.checking",
    "cost_of": "aacp.cost.budget",
    "discovered_steps": "aacp.latency.stepping",
    "example_input": "aacp.zoo.models",
    "export_onnx": "aacp.export",
    "finetune": "aacp.train.loop",
    "fit": "aacp.train.loop",
    "import_torchvision": "aacp.zoo.imports",
    "inherit": "aacp.estimate.inheritance",
    "interleaved": "aacp.timing",
    "load": "aacp.artefact",
    "load_data": "aacp.zoo.data",
    "load_weights": "aacp.zoo.weights",
    "macs": "aacp.cost.analytic",
    "measure_latency": "aacp.latency.measuring",
    "params": "aacp.cost.analytic",
    "prune": "aacp.pipeline.pruning",
    "ranking": "aacp.estimate.ranking",
    "recalibrate": "aacp.estimate.recalibration",
    "rescale": "aacp.search.rescaling",
    "run_in_processes": "aacp.train.launching",
    "run_search": "aacp.search.loop",
    "save": "aacp.artefact",
    "search_on": "aacp.estimate.distributed",
    "searcher": "aacp.search.methods",
    "setting_here": "aacp.latency.deployment",
    "shrink": "aacp.graph.surgery",
    "speedup": "aacp.timing",
    "sweep": "aacp.pipeline.sweep",
    "time_networks": "aacp.runtimes",
    "trace": "aacp.graph.tracing",
    "train_from_scratch": "aacp.train.loop",
    "verify": "aacp.graph.tracing",
    "weight_bytes": "aacp.cost.analytic",
    "write_report": "aacp.report.page",
}

__all__ = sorted(_PLACES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'aacp' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
