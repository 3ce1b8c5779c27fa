"""A transformer that classifies sentences, in the shape of DistilBERT."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline_service.demo.train import Fault, SlowBackward
from paceline_service.lab.sentences import CLASSES, PAD
from paceline_service.lab.sizes import Size


class Embeddings(nn.Module):
    """Words and positions become vectors."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.positions, size.width)
        self.norm = nn.LayerNorm(size.width)
        for table in (self.words, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, codes: Tensor) -> Tensor:
        """Return (batch, length, width) of ``codes`` (batch, length)."""
        place = torch.arange(codes.shape[1], device=codes.device)
        embedded: Tensor = self.norm(self.words(codes) + self.positions(place))
        return embedded


class Block(nn.Module):
    """Attention over the whole sentence, then a perceptron, each normalised behind its sum."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.project = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.perceptron_norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        """Return the next hidden state; ``seen`` (batch, 1, 1, length) tells words from padding."""
        batch, length, width = hidden.shape

        def of_heads(linear: nn.Linear) -> Tensor:
            heads: Tensor = linear(hidden).view(batch, length, self.heads, -1).transpose(1, 2)
            return heads

        mixed = nn.functional.scaled_dot_product_attention(
            of_heads(self.query), of_heads(self.key), of_heads(self.value), attn_mask=seen
        )
        mixed = self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = self.attention_norm(hidden + mixed)
        added = self.narrow(nn.functional.gelu(self.widen(hidden)))
        normed: Tensor = self.perceptron_norm(hidden + added)
        return normed


class Classifier(nn.Module):
    """Embeddings, blocks, and a head that reads the first position."""

    def __init__(self, size: Size, fault: Fault) -> None:
        super().__init__()
        self.embeddings = Embeddings(size)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.head = nn.Sequential(
            nn.Linear(size.width, size.width), nn.ReLU(), nn.Linear(size.width, len(CLASSES))
        )
        self.fault = fault

    def forward(self, codes: Tensor) -> Tensor:
        """Return the logits (batch, classes) of ``codes`` (batch, length)."""
        seen = (codes != PAD)[:, None, None, :]
        hidden = self.embeddings(codes)
        for index, block in enumerate(self.blocks):
            if index == len(self.blocks) // 2:
                self.fault.at("forward")
                hidden = SlowBackward.apply(hidden, self.fault)  # type: ignore[no-untyped-call]
            hidden = block(hidden, seen)
        logits: Tensor = self.head(hidden[:, 0])
        return logits
