"""The networks of benchmarks/tasks.py: other tasks and other libraries than those of benchmarks/zoo.txt.

Every network is built by its library with random weights; nothing is downloaded. `NETWORKS` maps a name to the task,
the library, a function that builds the network, and the shapes of its inputs.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from aacp.zoo._torchvision import import_torchvision


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    task: str
    library: str
    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]


def imported(place: str) -> Any:
    """A module of a library; torchvision is imported even where its compiled operators are missing."""
    import_torchvision()
    return importlib.import_module(place)


def without_weights(place: str, name: str) -> nn.Module:
    """A network of torchvision with random weights."""
    builder = getattr(imported(f"torchvision.models.{place}"), name)
    given = [key for key in ("weights", "weights_backbone") if key in inspect.signature(builder).parameters]
    model: nn.Module = builder(**dict.fromkeys(given))
    return model


# -- torchvision ------------------------------------------------------------------------------------------------------

SEGMENTERS = "deeplabv3_resnet50 lraspp_mobilenet_v3_large".split()
VIDEOS = "r3d_18 mc3_18 r2plus1d_18".split()
DETECTORS = """
fasterrcnn_resnet50_fpn fasterrcnn_mobilenet_v3_large_fpn retinanet_resnet50_fpn retinanet_resnet50_fpn_v2
fcos_resnet50_fpn ssd300_vgg16 ssdlite320_mobilenet_v3_large maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn
""".split()


def of_torchvision() -> Iterator[Entry]:
    """Segmentation, video, optical flow, and the backbones of detectors."""
    for name in SEGMENTERS:
        yield entry(
            "segmentation", "torchvision", name, lambda n=name: without_weights("segmentation", n), (1, 3, 64, 64)
        )
    for name in VIDEOS:
        shape = (1, 3, 8, 64, 64)
        yield entry("video", "torchvision", name, lambda n=name: without_weights("video", n), shape)
    for name in DETECTORS:
        yield entry(
            "detection backbone",
            "torchvision",
            f"{name}.backbone",
            lambda n=name: without_weights("detection", n).backbone,
            (1, 3, 320 if "ssd" in name else 128, 320 if "ssd" in name else 128),
        )
    flow = ((1, 3, 128, 128), (1, 3, 128, 128))
    yield Entry(
        "optical flow", "torchvision", "raft_small", lambda: without_weights("optical_flow", "raft_small"), flow
    )


# -- segmentation_models_pytorch --------------------------------------------------------------------------------------

DECODERS = "Unet UnetPlusPlus MAnet Linknet FPN PSPNet PAN DeepLabV3 DeepLabV3Plus UPerNet Segformer".split()
ENCODERS = "resnet18 mobilenet_v2 efficientnet-b0 densenet121 vgg11_bn".split()
DILATED = {"PAN", "DeepLabV3", "DeepLabV3Plus"}  # decoders for which these encoders cannot be dilated:
UNDILATED = {"densenet121", "vgg11_bn"}


def of_segmentation_models() -> Iterator[Entry]:
    """Every decoder with encoders of five kinds."""

    def built(decoder: str, encoder: str) -> nn.Module:
        library = imported("segmentation_models_pytorch")
        model: nn.Module = getattr(library, decoder)(encoder_name=encoder, encoder_weights=None, classes=5)
        return model

    for decoder in DECODERS:
        for encoder in ENCODERS:
            if decoder not in DILATED or encoder not in UNDILATED:
                name = f"{decoder}({encoder})"
                library = "segmentation_models_pytorch"
                side = 128 if decoder == "PAN" else 64
                shape = (1, 3, side, side)
                yield entry("segmentation", library, name, lambda d=decoder, e=encoder: built(d, e), shape)


# -- monai ------------------------------------------------------------------------------------------------------------

WIDTHS = (16, 32, 64)
MONAI: list[tuple[str, str, dict[str, Any], tuple[int, ...]]] = [
    (
        "segmentation",
        "UNet",
        {"spatial_dims": 2, "channels": WIDTHS, "strides": (2, 2), "num_res_units": 2},
        (1, 1, 32, 32),
    ),
    ("3-D segmentation", "UNet", {"spatial_dims": 3, "channels": WIDTHS, "strides": (2, 2)}, (1, 1, 16, 16, 16)),
    ("segmentation", "BasicUNet", {"spatial_dims": 2}, (1, 1, 32, 32)),
    ("3-D segmentation", "BasicUNet", {"spatial_dims": 3, "features": (8, 8, 16, 16, 32, 8)}, (1, 1, 32, 32, 32)),
    ("segmentation", "BasicUNetPlusPlus", {"spatial_dims": 2}, (1, 1, 32, 32)),
    ("segmentation", "AttentionUnet", {"spatial_dims": 2, "channels": WIDTHS, "strides": (2, 2)}, (1, 1, 32, 32)),
    (
        "3-D segmentation",
        "AttentionUnet",
        {"spatial_dims": 3, "channels": WIDTHS, "strides": (2, 2)},
        (1, 1, 16, 16, 16),
    ),
    ("segmentation", "SegResNet", {"spatial_dims": 2, "init_filters": 16}, (1, 1, 32, 32)),
    ("3-D segmentation", "SegResNet", {"spatial_dims": 3, "init_filters": 16}, (1, 1, 16, 16, 16)),
    ("3-D segmentation", "SegResNetDS", {"spatial_dims": 3, "init_filters": 16}, (1, 1, 16, 16, 16)),
    ("segmentation", "VNet", {"spatial_dims": 2}, (1, 1, 32, 32)),
    ("3-D segmentation", "HighResNet", {"spatial_dims": 3}, (1, 1, 16, 16, 16)),
    ("segmentation", "FlexibleUNet", {"backbone": "efficientnet-b0", "pretrained": False}, (1, 1, 64, 64)),
    (
        "3-D classification",
        "DenseNet121",
        {"spatial_dims": 3, "init_features": 16, "growth_rate": 8, "block_config": (2, 3, 3, 2)},
        (1, 1, 32, 32, 32),
    ),
    ("classification", "EfficientNetBN", {"model_name": "efficientnet-b0", "pretrained": False}, (1, 1, 64, 64)),
    ("segmentation", "Quicknat", {"num_channels": 1, "num_classes": 4, "num_filters": 16}, (1, 1, 64, 64)),
    ("segmentation", "AHNet", {"spatial_dims": 2, "psp_block_num": 0}, (1, 1, 64, 64)),
    ("segmentation", "SwinUNETR", {"feature_size": 12, "spatial_dims": 2}, (1, 1, 64, 64)),
    (
        "3-D segmentation",
        "UNETR",
        {"img_size": 32, "hidden_size": 48, "mlp_dim": 96, "num_heads": 4},
        (1, 1, 32, 32, 32),
    ),
    (
        "registration",
        "LocalNet",
        {"spatial_dims": 2, "num_channel_initial": 8, "extract_levels": (0, 1)},
        (1, 1, 32, 32),
    ),
    ("adversarial", "PatchDiscriminator", {"spatial_dims": 2, "channels": 16}, (1, 1, 64, 64)),
]
STAGES = {"channels": (8, 16, 32), "strides": (2, 2, 2)}
PLAIN = {"in_channels": 1, "out_channels": 2}
DYNAMIC = {"kernel_size": (3, 3, 3), "strides": (1, 2, 2), "upsample_kernel_size": (2, 2), "filters": (8, 16, 32)}
DENSE = {"in_channels": 1, "out_channels": 4, "init_features": 16, "growth_rate": 8}
RESIDUAL = {"n_input_channels": 1, "num_classes": 4, "pretrained": False, "widen_factor": 0.25}
SQUEEZED = {"spatial_dims": 2, "in_channels": 1, "num_classes": 4, "layers": (1, 1, 1, 1)}
MEDNEXT = {
    "init_filters": 8,
    "encoder_expansion_ratio": 2,
    "decoder_expansion_ratio": 2,
    "bottleneck_expansion_ratio": 2,
    "blocks_down": (1, 1, 1, 1),
    "blocks_bottleneck": 1,
    "blocks_up": (1, 1, 1, 1),
}
LATENT = {
    "num_res_blocks": (1, 1),
    "channels": (8, 16),
    "attention_levels": (False, False),
    "latent_channels": 4,
    "norm_num_groups": 4,
    "with_encoder_nonlocal_attn": False,
    "with_decoder_nonlocal_attn": False,
}
QUANTISED = {
    "channels": (8, 16),
    "num_res_layers": 1,
    "num_res_channels": (8, 8),
    "downsample_parameters": ((2, 4, 1, 1), (2, 4, 1, 1)),
    "upsample_parameters": ((2, 4, 1, 1, 0), (2, 4, 1, 1, 0)),
    "num_embeddings": 16,
    "embedding_dim": 8,
}
DIFFUSION = {
    "channels": (8, 16),
    "attention_levels": (False, True),
    "num_res_blocks": 1,
    "norm_num_groups": 4,
    "num_head_channels": 8,
}
FLAT = (1, 1, 32, 32)
SOLID = (1, 1, 16, 16, 16)
# Small networks, with all of their arguments: task, name in the table, class, arguments, shapes of the inputs.
SMALL_MONAI: list[tuple[str, str, str, dict[str, Any], tuple[tuple[int, ...], ...]]] = [
    ("segmentation", "DynUNet 2-D", "DynUNet", {"spatial_dims": 2, **PLAIN, **DYNAMIC}, (FLAT,)),
    (
        "3-D segmentation",
        "DynUNet 3-D, residual",
        "DynUNet",
        {"spatial_dims": 3, "res_block": True, **PLAIN, **DYNAMIC},
        (SOLID,),
    ),
    ("autoencoder", "AutoEncoder 2-D", "AutoEncoder", {"spatial_dims": 2, **PLAIN, **STAGES}, (FLAT,)),
    (
        "autoencoder",
        "AutoEncoder 3-D",
        "AutoEncoder",
        {"spatial_dims": 3, "num_res_units": 1, **PLAIN, **STAGES},
        (SOLID,),
    ),
    (
        "autoencoder",
        "VarAutoEncoder",
        "VarAutoEncoder",
        {"spatial_dims": 2, "in_shape": FLAT[1:], "out_channels": 1, "latent_size": 8, **STAGES},
        (FLAT,),
    ),
    ("classification", "Classifier", "Classifier", {"in_shape": FLAT[1:], "classes": 4, **STAGES}, (FLAT,)),
    ("adversarial", "Discriminator", "Discriminator", {"in_shape": FLAT[1:], **STAGES}, (FLAT,)),
    ("adversarial", "Critic", "Critic", {"in_shape": FLAT[1:], **STAGES}, (FLAT,)),
    (
        "adversarial",
        "Generator",
        "Generator",
        {"latent_shape": (16,), "start_shape": (8, 8, 8), "channels": (16, 8, 1), "strides": (2, 2, 1)},
        ((1, 16),),
    ),
    ("regression", "Regressor", "Regressor", {"in_shape": FLAT[1:], "out_shape": (4,), **STAGES}, (FLAT,)),
    ("classification", "resnet10 2-D", "resnet10", {"spatial_dims": 2, **RESIDUAL}, ((1, 1, 64, 64),)),
    ("3-D classification", "resnet10 3-D", "resnet10", {"spatial_dims": 3, **RESIDUAL}, ((1, 1, 32, 32, 32),)),
    ("3-D classification", "resnet18 3-D", "resnet18", {"spatial_dims": 3, **RESIDUAL}, ((1, 1, 32, 32, 32),)),
    (
        "segmentation",
        "SegResNetVAE 2-D",
        "SegResNetVAE",
        {"spatial_dims": 2, "input_image_size": (32, 32), "init_filters": 8, **PLAIN},
        (FLAT,),
    ),
    (
        "registration",
        "RegUNet 2-D",
        "RegUNet",
        {"spatial_dims": 2, "in_channels": 1, "num_channel_initial": 8, "depth": 2},
        (FLAT,),
    ),
    (
        "registration",
        "GlobalNet 2-D",
        "GlobalNet",
        {"image_size": (32, 32), "spatial_dims": 2, "in_channels": 1, "num_channel_initial": 8, "depth": 2},
        (FLAT,),
    ),
    (
        "registration",
        "LocalNet 3-D",
        "LocalNet",
        {"spatial_dims": 3, "in_channels": 1, "out_channels": 3, "num_channel_initial": 4, "extract_levels": (0, 1)},
        (SOLID,),
    ),
    (
        "segmentation",
        "UNet 2-D, batch norm",
        "UNet",
        {"spatial_dims": 2, **PLAIN, "channels": (8, 16, 32), "strides": (2, 2), "norm": "BATCH", "num_res_units": 1},
        (FLAT,),
    ),
    (
        "segmentation",
        "UNet 2-D, group norm",
        "UNet",
        {
            "spatial_dims": 2,
            **PLAIN,
            "channels": (8, 16, 32),
            "strides": (2, 2),
            "norm": ("GROUP", {"num_groups": 4}),
        },
        (FLAT,),
    ),
    (
        "1-D segmentation",
        "UNet 1-D",
        "UNet",
        {"spatial_dims": 1, **PLAIN, "channels": (8, 16, 32), "strides": (2, 2)},
        ((1, 1, 64),),
    ),
    (
        "1-D segmentation",
        "BasicUNet 1-D",
        "BasicUNet",
        {"spatial_dims": 1, **PLAIN, "features": (8, 8, 16, 16, 32, 8)},
        ((1, 1, 64),),
    ),
    ("autoencoder", "AutoencoderKL 2-D", "AutoencoderKL", {"spatial_dims": 2, **PLAIN, **LATENT}, ((1, 1, 16, 16),)),
    ("autoencoder", "VQVAE 2-D", "VQVAE", {"spatial_dims": 2, **PLAIN, **QUANTISED}, ((1, 1, 16, 16),)),
    (
        "diffusion",
        "DiffusionModelUNet 2-D",
        "DiffusionModelUNet",
        {"spatial_dims": 2, **PLAIN, **DIFFUSION},
        ((1, 1, 16, 16), (1,)),
    ),
    ("segmentation", "MedNeXt 2-D", "MedNeXt", {"spatial_dims": 2, **PLAIN, **MEDNEXT}, (FLAT,)),
    ("classification", "SEResNet50 2-D, 4 blocks", "SEResNet50", SQUEEZED, ((1, 1, 64, 64),)),
    ("classification", "SEResNext50 2-D, 4 blocks", "SEResNext50", SQUEEZED, ((1, 1, 64, 64),)),
    ("segmentation", "HighResNet 2-D", "HighResNet", {"spatial_dims": 2, **PLAIN}, (FLAT,)),
    ("segmentation", "SegResNetDS 2-D", "SegResNetDS", {"spatial_dims": 2, "init_filters": 8, **PLAIN}, (FLAT,)),
    ("segmentation", "SegResNetDS2 2-D", "SegResNetDS2", {"spatial_dims": 2, "init_filters": 8, **PLAIN}, (FLAT,)),
    ("3-D segmentation", "SegResNetDS2 3-D", "SegResNetDS2", {"spatial_dims": 3, "init_filters": 8, **PLAIN}, (SOLID,)),
    ("classification", "DenseNet 2-D", "DenseNet", {"spatial_dims": 2, "block_config": (2, 3, 2), **DENSE}, (FLAT,)),
    (
        "1-D classification",
        "DenseNet 1-D",
        "DenseNet",
        {"spatial_dims": 1, "block_config": (2, 2), **DENSE},
        ((1, 1, 64),),
    ),
]
WITHOUT_OUTPUTS = {"PatchDiscriminator", "Quicknat", "EfficientNetBN"}  # name their outputs otherwise


def of_monai() -> Iterator[Entry]:
    """Networks for medical pictures of two and three dimensions."""

    def built(name: str, options: dict[str, Any]) -> nn.Module:
        outputs = {} if name in WITHOUT_OUTPUTS else {"out_channels": 2}
        inputs = {} if name in {"Quicknat"} else {"in_channels": 1}
        model: nn.Module = getattr(imported("monai.networks.nets"), name)(**inputs, **outputs, **options)
        return model

    for task, name, options, shape in MONAI:
        title = f"{name} {len(shape) - 2}-D"
        yield entry(task, "monai", title, lambda n=name, o=options: built(n, o), shape)
    for task, title, name, options, shapes in SMALL_MONAI:
        build = lambda n=name, o=options: getattr(imported("monai.networks.nets"), n)(**o)  # noqa: E731
        yield Entry(task, "monai", title, build, shapes)


# -- ultralytics ------------------------------------------------------------------------------------------------------

YOLOS = """
yolov3-tiny yolov5n yolov5n-p6 yolov6n yolov8n yolov8n-p2 yolov8n-p6 yolov8n-ghost yolov8n-seg yolov8n-pose yolov8n-obb
yolov8n-cls yolov9t yolov9s yolov10n yolov10s yolo11n yolo11n-seg yolo11n-pose yolo11n-obb yolo11n-cls yolo12n
yolo12n-seg yolo12n-cls yolo26n yolo26n-seg yolo26n-pose
""".split()
SUFFIXES = {"seg": "segmentation", "pose": "pose", "obb": "oriented detection", "cls": "classification"}


def of_ultralytics() -> Iterator[Entry]:
    """Detectors and their relatives, from the YAML files of the package."""

    def built(name: str) -> nn.Module:
        model: nn.Module = imported("ultralytics").YOLO(f"{name}.yaml", verbose=False).model
        return model

    for name in YOLOS:
        task = SUFFIXES.get(name.rpartition("-")[2], "detection")
        side = 128 if "p6" in name else 64
        yield entry(task, "ultralytics", name, lambda n=name: built(n), (1, 3, side, side))


# -- timm -------------------------------------------------------------------------------------------------------------

BACKBONES = """
resnet26d resnet34d mobilenetv3_small_075 mobilenetv3_small_100 mobilenetv2_140 efficientnet_lite0 efficientnet_lite1
tf_efficientnet_b0 regnetx_004 regnety_006 convnext_pico convnext_nano darknet53 darknetaa53 hrnet_w18_small densenet169
ghostnet_100 ghostnet_130 res2net50_48w_2s vgg13_bn xception41 hardcorenas_d skresnet18 gernet_s rexnet_130
ese_vovnet39b lcnet_050 wide_resnet50_2 dpn68 repghostnet_080 fastvit_t8 inception_v4
""".split()


def of_timm() -> Iterator[Entry]:
    """Networks that zoo.txt does not have; they return the maps of all stages, as detectors and segmenters use them."""

    def built(name: str) -> nn.Module:
        model: nn.Module = imported("timm").create_model(name, features_only=True)
        return model

    for name in BACKBONES:
        side = 128 if name == "inception_v4" else 64  # it has no padding
        yield entry("feature pyramid", "timm", f"{name}, features only", lambda n=name: built(n), (1, 3, side, side))


# -- torchaudio -------------------------------------------------------------------------------------------------------


def of_torchaudio() -> Iterator[Entry]:
    """Speech: recognition and separation."""

    def built(name: str, options: dict[str, Any]) -> nn.Module:
        model: nn.Module = getattr(imported("torchaudio.models"), name)(**options)
        return model

    rows: list[tuple[str, str, dict[str, Any], tuple[int, ...]]] = [
        (
            "speech recognition",
            "Wav2Letter",
            {"num_classes": 30, "input_type": "mfcc", "num_features": 13},
            (1, 13, 200),
        ),
        ("speech separation", "conv_tasnet_base", {}, (1, 1, 4000)),
        ("source separation", "hdemucs_low", {"sources": ["voice", "rest"]}, (1, 2, 44100)),
        ("speech recognition", "wav2vec2_base", {"aux_num_out": 30}, (1, 8000)),
    ]
    for task, name, options, shape in rows:
        yield entry(task, "torchaudio", name, lambda n=name, o=options: built(n, o), shape)


def entry(task: str, library: str, name: str, build: Callable[[], nn.Module], shape: tuple[int, ...]) -> Entry:
    """A row for a network with one input."""
    return Entry(task, library, name, build, (shape,))


SOURCES = (of_torchvision, of_segmentation_models, of_monai, of_ultralytics, of_timm, of_torchaudio)
NETWORKS: dict[str, Entry] = {f"{row.library}:{row.name}": row for source in SOURCES for row in source()}
