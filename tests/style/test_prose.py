# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/style.md, as far as it can be counted; prose.py prints each finding."""
import pytest

from style import prose


def names(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(prose.TOP)))


@names(prose.documents())
def test_documents(path):
    check(prose.read(path))


@names(prose.commented())
def test_comments(path):
    check(prose.comments_of(path))


def check(measured):
    found = [f"{line}: {prose.count(sentence)} words: {sentence}" for line, sentence in measured.long()]
    if measured.too_headless():
        found += [f"{line}: headless: {sentence}" for line, sentence in measured.headless()]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("sentence, headless", [
    ("What was flushed is kept.", 1),
    ("It writes back what is dirty.", 1),
    ("Whoever mounts the disk has older data, and those that do not have newer.", 2),
    ("The disk belongs to who mounts it.", 1),
    ("What happens when the cache device fails?", 0),
    ("The admin who mounts the disk reads those blocks.", 0),
    ("It lists those.", 1),
])
def test_headless(sentence, headless):
    assert len(prose.Prose([(1, sentence)]).headless()) == headless


def test_sentences():
    text = "The pool ends in 3.5 s, e.g. at once. It says so (twice). 64 KiB is enough; so is less."
    assert [sentence for _, sentence in prose.split(1, text)] == [
        "The pool ends in 3.5 s, e.g at once.", "It says so (twice).", "64 KiB is enough; so is less."]
