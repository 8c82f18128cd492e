"""Fixtures for pytest, which finds them by itself: `disbatch_dev` is a Disbatch for all tests of a run.

`disbatch_plugins` in pytest.ini names folders of plugins, relative to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Dev


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("disbatch_plugins", "folders of plugins for the fixture disbatch_dev", type="paths", default=[])


@pytest.fixture(scope="session")
def disbatch_dev(request: pytest.FixtureRequest) -> Iterator[Dev]:
    """A `disbatch dev` with the plugins of the ini option `disbatch_plugins`."""
    # Not before it is wanted: pytest loads this module in every run.
    from .testing import Dev

    with Dev(plugins=request.config.getini("disbatch_plugins")) as dev:
        yield dev
