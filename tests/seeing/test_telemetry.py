"""Metrics and spans by OpenTelemetry, read back as Prometheus would and from a span exporter."""

import sys
import urllib.request

import numpy as np
import pytest
from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from plait import Graph, PlaitError, PlanError, RunFailed, open_scheduler
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture(scope="module")
def exporter():
    """One provider for all tests here: OpenTelemetry lets it be set once."""
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    trace.set_tracer_provider(provider)
    return found


@pytest.fixture(scope="module")
def scrape(exporter):
    """What a Prometheus server would read, over HTTP: value by sample name and labels."""
    server, thread = start_http_server(0, "127.0.0.1")

    def read():
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return [sample for family in families for sample in family.samples if sample.name.startswith("plait_")]

    yield read
    server.shutdown()
    server.server_close()
    thread.join()


def value(samples, name, **labels):
    found = [sample.value for sample in samples if sample.name == name and labels.items() <= {**sample.labels}.items()]
    assert len(found) == 1, f"{name} {labels}: {found} of {sorted({sample.name for sample in samples})}"
    return found[0]


def program(name, function=np.sum):
    g = Graph(name)
    x, b = g.input("x", (100,)), g.buffer("b", (100,))
    g.options(name="copy").copy(b, x)
    g.output("sum", g.options(name="last").call(abs, g.options(name="work").call(function, b)))
    return g


async def test_runs_are_scraped(scrape):
    async with open_scheduler(devices="host", streams=1, telemetry=True) as scheduler:
        good = program("scraped")
        for _ in range(3):
            await scheduler.run(good, x=np.ones(100))
        with pytest.raises(RunFailed):
            await scheduler.run(program("failing", int), x=np.ones(100))
        samples = scrape()
        of = {"plait_graph_name": "scraped"}
        assert value(samples, "plait_run_duration_seconds_count", **of) == 3
        assert 0 < value(samples, "plait_run_duration_seconds_sum", **of) < 60
        assert value(samples, "plait_compile_duration_seconds_count", **of) == 1
        assert value(samples, "plait_item_count_total", **of, plait_item_state="done") == 9
        assert value(samples, "plait_copy_io_bytes_total", **of) == 3 * 800
        assert value(samples, "plait_run_active", **of) == 0
        assert value(samples, "plait_run_memory_peak_bytes_sum", **of) >= 3 * 800
        of = {"plait_graph_name": "failing"}
        assert value(samples, "plait_run_duration_seconds_count", **of, error_type="RunFailed") == 1
        assert value(samples, "plait_item_count_total", **of, plait_item_state="failed") == 1


async def test_allocators_are_observed_while_the_scheduler_is_open(scrape):
    async with open_scheduler(devices="host", streams=1, telemetry=True) as scheduler:
        allocator = scheduler.devices[0].allocator
        before = allocator.statistics()
        block = allocator.allocate(1000)
        samples = scrape()
        host = {"plait_device_name": "host"}
        assert value(samples, "plait_memory_usage_bytes", **host) == before["in_use"] + 1000
        assert value(samples, "plait_memory_allocations_total", **host) == before["allocations"] + 1
        allocator.free(block)


async def test_a_run_is_a_span_and_its_items_are_its_children_if_asked(exporter):
    exporter.clear()
    with trace.get_tracer("test").start_as_current_span("caller"):
        async with open_scheduler(devices="host", streams=1, telemetry="items") as scheduler:
            run = scheduler.start(program("spans"), x=np.ones(100))
            await run
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"caller", "run spans", "copy", "work", "last"}
    whole = spans["run spans"]
    assert whole.parent.span_id == spans["caller"].context.span_id and whole.status.status_code is StatusCode.UNSET
    assert whole.attributes["plait.run.items"] == 3
    for name in ("copy", "work", "last"):
        item = spans[name]
        assert item.parent.span_id == whole.context.span_id
        assert whole.start_time <= item.start_time <= item.end_time <= whole.end_time
        assert item.attributes["code.file.path"] == __file__ and item.attributes["code.line.number"] > 0
    assert spans["copy"].attributes["plait.item.kind"] == "copy"


async def test_a_failed_run_is_an_error_span_without_item_spans_unless_asked(exporter):
    exporter.clear()
    async with open_scheduler(devices="host", streams=1, telemetry=True, trace=False) as scheduler:
        with pytest.raises(RunFailed):
            await scheduler.run(program("failing", int), x=np.ones(100))
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR and span.attributes["error.type"] == "RunFailed"
    (event,) = span.events
    assert event.name == "exception" and "item 'work' failed" in event.attributes["exception.message"]


async def test_what_telemetry_needs_is_said(monkeypatch):
    with pytest.raises(PlanError, match="telemetry must be True, False or 'items'"):
        async with open_scheduler(telemetry="all"):
            pass
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(PlaitError, match=r"plait\[telemetry\]"):
        async with open_scheduler(telemetry=True):
            pass
