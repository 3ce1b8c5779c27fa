"""The sentences of the lab, their tokens, and the sizes of its model."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline_service.lab.sentences import (
    BEGIN,
    CLASSES,
    PAD,
    UNKNOWN,
    WHAT,
    sentences,
    tokens,
    vocabulary,
)
from paceline_service.lab.sizes import SIZES


def test_the_same_seed_writes_the_same_sentences_and_another_one_does_not() -> None:
    assert sentences(50, seed=7) == sentences(50, seed=7)
    assert sentences(50, seed=7) != sentences(50, seed=8)


def test_no_class_is_rare() -> None:
    counts = Counter(label for _, label in sentences(4000, seed=7))
    assert set(counts) == set(range(len(CLASSES)))
    assert min(counts.values()) > 800


def test_what_is_done_tells_the_class_and_who_does_it_does_not() -> None:
    told = {CLASSES[label]: set() for _, label in sentences(1, seed=7)}
    for text, label in sentences(500, seed=7):
        verbs, objects = WHAT[CLASSES[label]]
        assert any(f" {verb} " in text for verb in verbs)
        assert any(thing in text for thing in objects)
        told.setdefault(CLASSES[label], set()).add(" ".join(text.split()[:2]))
    assert len(set.intersection(*told.values())) > 5


def test_every_word_has_a_number_and_a_sentence_fits() -> None:
    words = vocabulary()
    for text, _ in sentences(1000, seed=7):
        numbers = tokens(text, words, length=12)
        assert len(numbers) == 12
        assert numbers[0] == BEGIN
        assert UNKNOWN not in numbers
        assert len([n for n in numbers if n != PAD]) == len(text.split()) + 1
    assert max(words.values()) < min(size.vocabulary for size in SIZES.values())


def test_a_word_that_no_sentence_has_is_unknown() -> None:
    assert tokens("my zebra", vocabulary(), length=4)[2:] == [UNKNOWN, PAD]


def test_the_largest_model_has_the_parameters_of_distilbert() -> None:
    # DistilBertForSequenceClassification of base size, two classes: 66,955,010 (transformers).
    assert SIZES["distilbert"].parameters(classes=2) == 66_955_010


@pytest.mark.parametrize("name", SIZES)
def test_a_head_divides_the_width(name: str) -> None:
    assert SIZES[name].width % SIZES[name].heads == 0
