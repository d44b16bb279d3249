"""Date patterns of Java's ``SimpleDateFormat``, in UTC and with English names: ``yyyy-MM-dd'T'HH:mm:ss.SSSX``.

Text is parsed as leniently as Java does it: the 32nd of January is the 1st of February, and text behind the pattern is ignored.
Letters of week years and weeks (``Y``, ``w``, ``W``, ``F``) are refused.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS: Final = "GyMLdDEuaHkKhmsSzZX"
_TOKENS = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<text>[^A-Za-z']+)|(?P<lone>')")
_ZONE = r"Z|(?:UTC|GMT)(?:[+-]\d{1,2}:?\d{2})?|[+-]\d{2}(?::?\d{2})?"
_NUMBERS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "M": lambda at: at.month,
    "L": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "u": lambda at: at.isoweekday(),
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "K": lambda at: at.hour % 12,
    "h": lambda at: at.hour % 12 or 12,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: at.microsecond // 1000,
}


class DatePattern:
    """A compiled pattern.

    Raises:
        ValueError: The pattern has a letter that is none of ``SimpleDateFormat``'s, or an open quote.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts: list[tuple[str, int] | str] = []
        for token in _TOKENS.finditer(pattern):
            if (letters := token["letters"]) is not None:
                if letters[0] not in _LETTERS:
                    raise ValueError(f"Illegal pattern character '{letters[0]}'")
                self._parts.append((letters[0], len(letters)))
            elif token["lone"]:
                raise ValueError("Unterminated quote")
            else:
                quoted = token["quoted"]
                self._parts.append(token["text"] if quoted is None else quoted.replace("''", "'") or "'")
        self._regex: re.Pattern[str] | None = None

    def format(self, at: datetime) -> str:
        """The text of a time in UTC."""
        return "".join(part if isinstance(part, str) else _text(at, *part) for part in self._parts)

    def parse(self, text: str) -> datetime:
        """The time of a text.

        Raises:
            ValueError: The text does not match the pattern, or the year is not between 1 and 9999.
        """
        if self._regex is None:
            self._regex = self._compiled()
        found = self._regex.match(text)
        if found is None:
            raise ValueError(f"Unparseable date: {text!r}")
        fields = {name.rstrip("0123456789"): value for name, value in found.groupdict().items() if value is not None}
        try:
            return _time(fields)
        except OverflowError as error:
            raise ValueError(f"Unparseable date: {text!r}: {error}") from None

    def _compiled(self) -> re.Pattern[str]:
        made, parts = "", self._parts
        for number, part in enumerate(parts):
            if isinstance(part, str):
                made += re.escape(part)
                continue
            letter, count = part
            following = parts[number + 1] if number + 1 < len(parts) else ""
            is_abutting = not isinstance(following, str) and _is_number(*following)
            made += f"(?P<{letter}{number}>{_expression(letter, count, is_abutting=is_abutting)})"
        return re.compile(made, re.IGNORECASE | re.ASCII)


def _is_number(letter: str, count: int) -> bool:
    return letter == "y" or (letter in _NUMBERS and not (letter in "ML" and count > 2))


def _text(at: datetime, letter: str, count: int) -> str:
    match letter:
        case "G":
            return "AD"
        case "y":
            return f"{at.year % 100:02}" if count == 2 else f"{at.year:0{count}}"
        case "M" | "L" if count > 2:
            return _MONTHS[at.month - 1][: 3 if count == 3 else None]
        case "E":
            return _DAYS[at.weekday()][: 3 if count < 4 else None]
        case "a":
            return "AM" if at.hour < 12 else "PM"
        case "z":
            return "UTC" if count < 4 else "Coordinated Universal Time"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
        case _:
            return f"{_NUMBERS[letter](at):0{count}}"


def _expression(letter: str, count: int, *, is_abutting: bool) -> str:
    if _is_number(letter, count):
        return rf"\d{{{count}}}" if is_abutting else r"\d+"
    match letter:
        case "M" | "L":
            return "|".join((*_MONTHS, *(name[:3] for name in _MONTHS)))
        case "E":
            return "|".join((*_DAYS, *(name[:3] for name in _DAYS)))
        case "G":
            return "AD"
        case "a":
            return "AM|PM"
        case _:
            return _ZONE


def _time(fields: Mapping[str, str]) -> datetime:
    year = _year(fields["y"]) if "y" in fields else 1970
    month_text = fields.get("M", fields.get("L", "1"))
    month = int(month_text) if month_text.isdigit() else [name[:3].lower() for name in _MONTHS].index(month_text[:3].lower()) + 1
    years, month = divmod(month - 1, 12)
    days = int(fields["d"]) - 1 if "d" in fields else int(fields["D"]) - 1 if "D" in fields else 0
    if "D" in fields and "d" not in fields:
        month = 0
    if "H" in fields or "k" in fields:
        hours = int(fields["H"]) if "H" in fields else int(fields["k"]) % 24
    else:
        hours = int(fields.get("K", fields.get("h", "0"))) % 12 + (12 if fields.get("a", "").upper() == "PM" else 0)
    zone = next((fields[name] for name in "zZX" if name in fields), "Z")
    spans = {"minutes": int(fields.get("m", 0)), "seconds": int(fields.get("s", 0)), "milliseconds": int(fields.get("S", 0))}
    return datetime(year + years, month + 1, 1, tzinfo=UTC) + timedelta(days=days, hours=hours, **spans) - _offset(zone)


def _year(text: str) -> int:
    """A year of two digits is the one between 80 years ago and 20 years ahead."""
    if len(text) != 2:
        return int(text)
    first = datetime.now(UTC).year - 80
    return first + (int(text) - first) % 100


def _offset(zone: str) -> timedelta:
    digits = re.sub(r"\D", "", zone)
    if not digits:
        return timedelta()
    hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
    return timedelta(hours=hours, minutes=minutes) * (-1 if "-" in zone else 1)
