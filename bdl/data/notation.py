"""Texts that are no categories: numbers, dates and times, in the notations that files have."""

import re
from collections.abc import Sequence

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,? )?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]\.?m\.?)?(?: ?(?:z|utc|gmt|[+-]\d{2}:?\d{2}))?"
_UNIT = r"(?:weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|ms|us|µs|ns)"
_MONEY = r"(?:[$€£¥₹]|usd|eur|gbp|chf|jpy)"
_SIGN = r"[+\-\u2212\u2013]?"
_DIGITS = r"(?:\d{1,3}(?:[.,'\u2019 _]\d{2,3})+|\d+)"
_NUMBER = rf"(?:{_DIGITS}(?:[.,]\d*)?|[.,]\d+)(?:[ed][+\-\u2212]?\d+)?"
_PATTERNS = [
    ("a date", rf"\d{{4}}([-/.])\d{{1,2}}(?:\1\d{{1,2}})?(?:[t ]{_CLOCK})?"),
    ("a date", rf"\d{{1,2}}([-/.])\d{{1,2}}\1(?:\d{{4}}|\d{{2}})(?:[t ,]+{_CLOCK})?"),
    ("a date", rf"{_DAY}\d{{1,2}}(?:st|nd|rd|th)?\.?[- ]?{_MONTH}(?:[- ,]+\d{{2,4}})?(?: {_CLOCK})?"),
    ("a date", rf"{_DAY}{_MONTH}[- ]?\d{{1,2}}(?:st|nd|rd|th)?(?:, ?| )(?:{_CLOCK} )?\d{{4}}(?: {_CLOCK})?"),
    ("a date", rf"{_MONTH}[- ]?\d{{2,4}}"),
    ("a date", r"\d{4}[- ]?(?:q[1-4]|w\d{1,2}(?:-?\d)?)|q[1-4][- ]?\d{4}"),
    ("a time", _CLOCK),
    ("a time", r"\d{1,2} ?[ap]\.?m\.?|\d{1,2}h\d{2}"),
    ("a time", rf"{_SIGN}(?:\d+ days?,? )?[+-]?\d+:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?"),
    ("a time", rf"{_SIGN}(?:\d+(?:[.,]\d+)? ?{_UNIT}[ ,]*)+"),
    ("a time", r"-?p(?=.)(?:\d+[ymwd])*(?:t(?:\d+(?:\.\d+)?[hms])+)?"),
    ("a number", rf"\(?{_SIGN} ?{_MONEY}? ?{_SIGN}{_NUMBER} ?(?:{_MONEY}|%|‰)?\)?"),
    ("a number", r"[+-]?0(?:x[0-9a-f]+|b[01]+|o[0-7]+)|\d+ ?/ ?\d+"),
]
_KINDS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS]
_BLANK = re.compile(r"[\s\u200b\ufeff]+")
_GROUPS = {mark: re.compile(rf"[+-]?\d{{1,3}}(?:{re.escape(mark)}\d{{3}})+(?:[.,]\d*)?") for mark in ",.' "}


def kind_of(text: str) -> str | None:
    """Return ``"a number"``, ``"a date"`` or ``"a time"``; None for any other text."""
    plain = trimmed(text)
    if is_plain(plain):
        return "a number"
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(plain)), None)


def is_plain(text: str, decimal: str = ".") -> bool:
    """Return whether a text is a number as programs write it, with a decimal point or comma."""
    if decimal == ",":
        text = text.replace(".", "_").replace(",", ".")
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii() and any(map(str.isdigit, text))


def trimmed(text: str) -> str:
    """Return a text with single spaces for white space of any kind, and none around it."""
    return _BLANK.sub(" ", text).strip()


def is_grouped(text: str, mark: str) -> bool:
    """Return whether a number has marks between groups of three digits, and nowhere else."""
    return _GROUPS[mark].fullmatch(text) is not None


def settings_for(texts: Sequence[str], decimal: str) -> str:
    """Return the settings of a CSV file with which texts are numbers, ``thousands: ","``; empty if none are known.

    Parameters
    ----------
    texts
        Numbers in some notation.
    decimal
        Decimal point that was tried.
    """
    other = "." if decimal == "," else ","
    odd = [text for text in map(str.strip, texts) if not is_plain(text, decimal)]
    if not odd:
        return ""
    tried = [f'thousands: "{mark}"' for mark in ",.' " if mark != decimal and all(is_grouped(t, mark) for t in odd)]
    if all(re.fullmatch(rf"[+-]?\d*{other}\d*(?:e[+-]?\d+)?", text, re.IGNORECASE) for text in odd):
        tried.append(f'decimal: "{other}"')
    elif not tried and all(re.fullmatch(rf"[+-]?[\d{decimal}]*(?:{other}\d*)?", text) for text in odd):
        tried.append(f'decimal: "{other}" and thousands: "{decimal}"')
    return " or ".join(tried)
