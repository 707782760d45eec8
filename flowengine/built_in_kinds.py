"""The built-in step kinds, kinds of environment and sandboxes: name in flow files → class.

Those of other packages are found by their entry points. Reading these takes longer than starting
Python, so what is built in does not depend on them.
"""

from __future__ import annotations

NODES = "flowengine.nodes"
ENVIRONMENTS = "flowengine.envs"
SANDBOXES = "flowengine.sandboxes"

BUILT_IN = {
    NODES: {
        "agent": "flowengine_nodes.agent:Agent",
        "agent_function": "flowengine_nodes.python_agents:AgentFunction",
        "agent_offer": "flowengine_nodes.agent:Offer",
        "agent_reduction": "flowengine_nodes.agent:Reduction",
        "agent_skill": "flowengine_nodes.agent:AgentSkill",
        "agent_turn": "flowengine_nodes.agent:Turn",
        "http": "flowengine_nodes.http:Http",
        "mcp": "flowengine_nodes.mcp:Mcp",
        "python": "flowengine_nodes.python:Python",
        "python_agents": "flowengine_nodes.python_agents:PythonAgents",
        "run": "flowengine_nodes.run:Run",
        "shell": "flowengine_nodes.shell:Shell",
        "slack": "flowengine_nodes.slack:Slack",
        "smtp": "flowengine_nodes.smtp:Smtp",
        "std": "flowengine_nodes.std:Std",
        "web_search": "flowengine_nodes.web_search:WebSearch",
    },
    ENVIRONMENTS: {
        "bash": "flowengine_envs.kinds.bash:BashProvider",
        "browser": "flowengine_envs.browser.provider:BrowserProvider",
        "docker": "flowengine_envs.kinds.docker.provider:DockerProvider",
        "documents": "flowengine_envs.documents.provider:DocumentsProvider",
        "files": "flowengine_envs.kinds.files:Files",
        "host": "flowengine_envs.kinds.host:HostCommands",
        "http": "flowengine_envs.kinds.http:Http",
        "mcp": "flowengine_envs.mcp.provider:Mcp",
        "node": "flowengine_envs.kinds.node:NodeProvider",
        "python": "flowengine_envs.kinds.python:Python",
        "shell": "flowengine_envs.kinds.shell.provider:ShellProvider",
        "sqlite": "flowengine_envs.kinds.sqlite:Sqlite",
    },
    SANDBOXES: {
        "docker": "flowengine_envs.sandboxes.docker.sandbox:Docker",
        "host": "flowengine_envs.sandboxes.host:HostSandbox",
        "namespace": "flowengine_envs.sandboxes.namespace:Namespace",
    },
}
"""Group of entry points → name → class, as an entry point names it."""
