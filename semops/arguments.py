"""Checks of what a user passes to an operator: what was found, what is allowed.

Front ends call them when an operator is built, so that a mistake is told before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from numbers import Integral, Real

import numpy as np

from semops.errors import ConfigError


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Check an argument that has a few allowed values.

    Raises
    ------
    ConfigError
        If the value is none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        msg = f"{name}={value!r} is not allowed; choose one of {listed}."
        raise ConfigError(msg)


def check_answers(answers: object) -> tuple[str, str]:
    """Check the two answers of a predicate.

    Raises
    ------
    ConfigError
        If there are not two different, non-empty texts.
    """
    ok = (
        isinstance(answers, (tuple, list))
        and len(answers) == 2
        and all(is_text(a) and a.strip() for a in answers)
        and answers[0] != answers[1]
    )
    if not ok:
        msg = (
            f"answers={answers!r} must be two different texts, the one for yes first, for example "
            f'answers=("positive", "negative").'
        )
        raise ConfigError(msg)
    assert isinstance(answers, (tuple, list))  # noqa: S101
    return (str(answers[0]), str(answers[1]))


def answer_of(answers: tuple[str, str]) -> Callable[[object], str]:
    """Return what turns an example's answer to a predicate into the text of it.

    Examples
    --------
    >>> answer_of(("yes", "no"))(True)
    'yes'
    """

    def text(answer: object) -> str:
        if isinstance(answer, (bool, np.bool_)):
            return answers[0] if answer else answers[1]
        if isinstance(answer, str) and answer in answers:
            return answer
        raise ConfigError(
            f"the answer {answer!r} must be True or False, or one of {answers[0]!r} and {answers[1]!r}."
        )

    return text


def check_max_tokens(max_tokens: object) -> int:
    """Check a cap on answers.

    Raises
    ------
    ConfigError
        If it is not a positive whole number.
    """
    if not isinstance(max_tokens, bool) and isinstance(max_tokens, Integral):
        tokens = int(max_tokens)
        if tokens >= 1:
            return tokens
    msg = f"max_tokens={max_tokens!r} must be a whole number of at least 1 (tokens)."
    raise ConfigError(msg)


def check_stop(stop: object) -> tuple[str, ...]:
    """Check the texts that end an answer.

    Raises
    ------
    ConfigError
        If there is anything but non-empty texts.
    """
    texts = (stop,) if isinstance(stop, str) else stop
    ok = isinstance(texts, (tuple, list)) and all(is_text(t) and t for t in texts)
    if not ok:
        msg = f'stop={stop!r} must be a text, or several in a tuple, none empty, for example stop="\\n".'
        raise ConfigError(msg)
    assert isinstance(texts, (tuple, list))  # noqa: S101
    return tuple(texts)


def check_text(argument: str, value: object) -> str:
    """Check an argument that is a text, for example a column's name.

    Raises
    ------
    ConfigError
        If it is something else.
    """
    if not is_text(value):
        half = " without halves of surrogate pairs" if isinstance(value, str) else ""
        msg = f"{argument}={value!r} must be a text{half}."
        raise ConfigError(msg)
    assert isinstance(value, str)  # noqa: S101 - is_text has seen to it
    return value


def is_text(value: object) -> bool:
    """Return whether a value is a text that a prompt or a column's name can hold.

    Examples
    --------
    >>> is_text("👍"), is_text(chr(0xD83D)), is_text(None)
    (True, False, False)
    """
    # Half a surrogate pair is a character for Python, and for nobody else.
    return isinstance(value, str) and not any("\ud800" <= part <= "\udfff" for part in value)


def check_number(argument: str, value: object, low: float, high: float = float("inf")) -> float:
    """Check an argument that is a number in a range.

    Raises
    ------
    ConfigError
        If it is something else.

    Examples
    --------
    >>> check_number("min_mass", 0.5, 0, 1)
    0.5
    """
    if not isinstance(value, bool) and isinstance(value, (Real, Decimal)):
        number = float(value)
        if low <= number <= high:
            return number
    upper = "" if high == float("inf") else f" and at most {high:g}"
    raise ConfigError(f"{argument}={value!r} must be a number of at least {low:g}{upper}.")


def check_flag(argument: str, value: object) -> bool:
    """Check an argument that is True or False.

    Raises
    ------
    ConfigError
        If it is something else.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{argument}={value!r} must be True or False.")
    return bool(value)
