"""Generated sentences to classify, and the tokenizer for them.

Who acts and when is the same in every class; what is done and to what tells the class. So a
model has to find the few words that matter, which takes it some tens of steps.
"""

from __future__ import annotations

import random

CLASSES = ("cooking", "music", "travel", "weather")
WHO = (
    "my neighbour", "the old teacher", "a young doctor", "her brother", "the quiet clerk",
    "our cousin", "an engineer", "the farmer", "his aunt", "a student",
)  # fmt: skip
WHEN = (
    "this morning", "last night", "on sunday", "before noon", "in april", "after work",
    "every winter", "for an hour", "twice a week", "as always",
)  # fmt: skip
WHAT = {
    "cooking": (
        ("stirs", "bakes", "tastes", "burns", "salts"),
        ("the soup", "a cake", "the onions", "fresh bread", "the beans", "a sauce"),
    ),
    "music": (
        ("plays", "hums", "practises", "records", "conducts"),
        ("a waltz", "the cello", "an old song", "the symphony", "a slow tune", "the piano"),
    ),
    "travel": (
        ("boards", "misses", "catches", "books", "leaves"),
        ("the night train", "a ferry", "the early flight", "a crowded tram", "the hotel"),
    ),
    "weather": (
        ("watches", "fears", "forecasts", "awaits", "notices"),
        ("the storm", "a cold front", "light rain", "the fog", "thick snow", "the clouds"),
    ),
}  # fmt: skip
PAD, UNKNOWN, BEGIN = 0, 1, 2
_SPECIAL = ("[pad]", "[unknown]", "[begin]")


def sentences(count: int, seed: int) -> list[tuple[str, int]]:
    """Return ``count`` sentences, each with the number of its class in ``CLASSES``."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        label = rng.randrange(len(CLASSES))
        verbs, objects = WHAT[CLASSES[label]]
        text = f"{rng.choice(WHO)} {rng.choice(verbs)} {rng.choice(objects)} {rng.choice(WHEN)}"
        made.append((text, label))
    return made


def vocabulary() -> dict[str, int]:
    """Return the number of every word that a sentence can have; it never changes."""
    phrases = [*WHO, *WHEN]
    for verbs, objects in WHAT.values():
        phrases += [*verbs, *objects]
    words = sorted({word for phrase in phrases for word in phrase.split()})
    return {word: number for number, word in enumerate((*_SPECIAL, *words))}


def tokens(text: str, words: dict[str, int], length: int) -> list[int]:
    """Return the numbers of the words of ``text``, begun, cut and padded to ``length``."""
    numbers = [BEGIN, *(words.get(word, UNKNOWN) for word in text.split())][:length]
    return numbers + [PAD] * (length - len(numbers))
