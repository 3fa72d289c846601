# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of timm, of its classes with small arguments; the loss is cross entropy."""

from __future__ import annotations

from subject import Subject, classes, images, stirred
from timm.models.convnext import ConvNeXt
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F


def _classifier(model: nn.Module) -> Subject:
    return Subject(stirred(model).train(), (images(), classes()), F.cross_entropy)


def timm_vit() -> Subject:
    """Patches of an image, a class token."""
    return _classifier(VisionTransformer(img_size=16, patch_size=4, num_classes=5, embed_dim=32, depth=2, num_heads=4))


def timm_swin() -> Subject:
    """Windows that are shifted by rolling."""
    model = SwinTransformer(
        img_size=16, patch_size=2, num_classes=5, window_size=4, embed_dim=16, depths=(2, 2), num_heads=(2, 4),
        drop_path_rate=0.0,
    )  # fmt: skip
    return _classifier(model)


def timm_mixer() -> Subject:
    """Linear layers over patches and over channels."""
    return _classifier(MlpMixer(num_classes=5, img_size=16, patch_size=4, num_blocks=2, embed_dim=32))


def timm_resmlp() -> Subject:
    """Affine layers in place of norms."""
    model = MlpMixer(
        num_classes=5, img_size=16, patch_size=4, num_blocks=2, embed_dim=32, mlp_ratio=4, block_layer=ResBlock,
        norm_layer=Affine,
    )  # fmt: skip
    return _classifier(model)


def timm_convnext() -> Subject:
    """Convolutions of each channel, LayerNorm over channels."""
    model = ConvNeXt(num_classes=5, depths=(1, 1, 1, 1), dims=(8, 8, 8, 16), patch_size=1, drop_path_rate=0.0)
    return _classifier(model)


MODELS = [timm_vit, timm_swin, timm_mixer, timm_resmlp, timm_convnext]
