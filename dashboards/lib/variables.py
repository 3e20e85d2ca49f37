"""The variables of every board: named as the labels that they choose, so that alerts can link to a choice."""

from dataclasses import dataclass

from prefixwatch.catalog import PREFIX

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
DATASOURCE_UID = "prefixwatch-prometheus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A label to choose values of. `source`: the metric (no prefix) that has it; `all_value`: what All means."""

    name: str
    label: str
    source: str
    all_value: str
    description: str


# A label that nothing has is matched by .* alone: one vLLM on one host has neither cluster nor namespace, and an
# alert's link without a cluster means that too.
VARIABLES = (
    Variable(name="cluster", label="Cluster", source="up", all_value=".*", description="From the targets' labels."),
    Variable(name="namespace", label="Namespace", source="up", all_value=".*", description="From the targets' labels."),
    Variable(name="job", label="Job", source="build_info", all_value=".+", description="Prometheus's job of the exporter."),
    Variable(
        name="instance", label="Instance", source="build_info", all_value=".+",
        description="One exporter; recorded series count an engine once, whichever exporter watches it.",
    ),
    Variable(name="model_name", label="Model", source="counters_frozen", all_value=".*", description="As the engine names it."),
    Variable(name="target", label="Target", source="up", all_value=".*", description="host:port of an engine."),
    Variable(name="engine", label="Engine", source="counters_frozen", all_value=".*", description="Data-parallel rank."),
)  # fmt: skip
FILTERS = tuple(variable.name for variable in VARIABLES)

# What each variable's values are narrowed by: those before it that its source has.
_NARROWED_BY = {
    "namespace": ("cluster",),
    "instance": ("job",),
    "model_name": ("cluster", "namespace", "job"),
    "target": ("cluster", "namespace", "job"),
    "engine": ("cluster", "namespace", "job", "model_name", "target"),
}


def query(variable: Variable) -> str:
    """Return the query for a variable's values."""
    chosen = ", ".join(f'{name}=~"${name}"' for name in _NARROWED_BY.get(variable.name, ()))
    selector = f"{PREFIX}{variable.source}" + (f"{{{chosen}}}" if chosen else "")
    return f"label_values({selector}, {variable.name})"
