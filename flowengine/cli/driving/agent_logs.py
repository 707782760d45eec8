"""Log events of agents that a command drives."""

from __future__ import annotations

from collections.abc import Callable

from flowengine.agents.loggers import LoggerManager
from flowengine.cli.session import CliSession
from flowengine.engines.agent_events import AgentEvents
from flowengine.engines.results import Update
from flowengine.runner.work import Reporter


def log_agents(session: CliSession) -> Callable[[], object]:
    """Log the actions of agents, at the level of `--log-level`, else of `FLOWENGINE_LOG_LEVEL`.

    Returns:
        A function that ends it.
    """
    if session.arguments.log_level:
        LoggerManager.set_logger(LoggerManager(session.arguments.log_level))
    logger = LoggerManager.get_logger()
    reporters: dict[str, Reporter] = {}

    def report(update: Update) -> None:
        if update.step is None:
            return
        id = update.execution
        if id not in reporters:
            flow = session.flow_of(id).compiled
            reporters[id] = Reporter(logger, AgentEvents(flow, id), ends=True)
        reporters[id](update)

    return session.engine.subscribe(report)
