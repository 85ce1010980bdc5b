"""The texts of a report by key, in the language of its reader."""

from __future__ import annotations

from horovod.lab import errors
from horovod.lab.report.sentences_en import SENTENCES as ENGLISH_SENTENCES
from horovod.lab.report.sentences_zh import SENTENCES as CHINESE_SENTENCES
from horovod.lab.report.words_en import WORDS as ENGLISH
from horovod.lab.report.words_zh import WORDS as CHINESE

__all__ = ["LANGUAGES", "NO_BREAK", "Words"]

LANGUAGES = {"en": ENGLISH | ENGLISH_SENTENCES, "zh": CHINESE | CHINESE_SENTENCES}

NO_BREAK = "\N{NO-BREAK SPACE}"  # keeps a number and its unit on one line


class Words:
    """Texts of one language: ``words("speed_best", row="bit8 × 2")``."""

    def __init__(self, language: str) -> None:
        if language not in LANGUAGES:
            raise errors.no_language(got=language, choices=list(LANGUAGES))
        self.language = language
        self._texts = LANGUAGES[language]

    def __call__(self, key: str, **values: object) -> str:
        text = self._texts[key].format(**values)
        if self.language == "zh":
            text = text.replace("） ", "）")  # a full-width mark contains its space
        return text.replace(" %", f"{NO_BREAK}%")

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def count(self, key: str, number: int) -> str:
        """`number` of something: "1 seed", "3 seeds"."""
        return self(f"{key}_{'one' if number == 1 else 'many'}", number=number)

    def together(self, *sentences: str) -> str:
        return self("gap").join(sentences)

    def listed(self, items: list[str]) -> str:
        return self("comma").join(items)
