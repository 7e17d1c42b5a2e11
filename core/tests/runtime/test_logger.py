"""Loggers print what their level lets through, once, whoever asks for them again."""

from __future__ import annotations

import logging

import mgb
import pytest


def test_loggers_print_once_and_respect_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    logger = mgb.get_logger("of a test")
    assert mgb.get_logger("of a test") is logger
    logger.info("a step")
    logger.debug("a detail")
    former = mgb.set_log_level("DEBUG")
    try:
        logger.debug("another detail")
        assert mgb.get_logger("later").isEnabledFor(logging.DEBUG)
    finally:
        assert (former, mgb.set_log_level(former)) == (logging.INFO, logging.DEBUG)
    printed = capsys.readouterr().err
    assert printed.count("INFO of a test: a step") == printed.count("another detail") == 1
    assert "a detail\n" not in printed
    with pytest.raises(ValueError, match="LOUD"):
        mgb.set_log_level("LOUD")
