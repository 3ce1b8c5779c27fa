"""How large the model of the lab can be; the numbers of each size are those of its parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of the classifier.

    Attributes:
        layers: blocks of attention and perceptron.
        width: of the hidden state; a perceptron is four times as wide.
        heads: of attention.
        vocabulary: rows of the table of words; the sentences use the first hundred.
        positions: rows of the table of positions.
        batch: sentences of a rank in a step.
        rate: learning rate at which it learns these sentences in tens of steps.
        bucket_bytes: of DDP's buckets, so that there are several.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int
    batch: int
    rate: float
    bucket_bytes: int

    def parameters(self, classes: int) -> int:
        """Return how many parameters such a model has."""
        tables = (self.vocabulary + self.positions) * self.width + 2 * self.width
        attention = 4 * (self.width * self.width + self.width)
        perceptron = 8 * self.width * self.width + 5 * self.width
        head = self.width * self.width + self.width + classes * (self.width + 1)
        return tables + self.layers * (attention + perceptron + 4 * self.width) + head


SIZES = {
    "tiny": Size(
        layers=2, width=64, heads=4, vocabulary=256, positions=16, batch=16, rate=3e-3,
        bucket_bytes=128 << 10,
    ),
    "small": Size(
        layers=4, width=192, heads=6, vocabulary=2048, positions=32, batch=16, rate=1e-3,
        bucket_bytes=1 << 20,
    ),
    "medium": Size(
        layers=6, width=384, heads=6, vocabulary=8192, positions=64, batch=16, rate=5e-4,
        bucket_bytes=4 << 20,
    ),
    "distilbert": Size(
        layers=6, width=768, heads=12, vocabulary=30_522, positions=512, batch=8, rate=1e-4,
        bucket_bytes=25 << 20,
    ),
}  # fmt: skip
"""``distilbert`` has the shape of DistilBERT base (Sanh and others 2019, arXiv:1910.01108)."""
