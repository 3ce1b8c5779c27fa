// Draws a dashboard from its own JSON and recorded data with Grafana's components.
// The page that shows it is for pictures: nothing here is part of Paceline.
import { Component, useLayoutEffect, type ReactNode } from "react";
import { createRoot } from "react-dom/client";
import {
  FieldMatcherID, applyFieldOverrides, createTheme, dateTime, fieldMatchers, getFieldDisplayValues,
  standardTransformers, standardTransformersRegistry, toDataFrame, transformDataFrame,
  type DataFrame, type TimeRange,
} from "@grafana/data";
import {
  BarGauge, BigValue, GlobalStyles, PanelChrome, PanelContextProvider, PortalContainer, Table, ThemeContext, TimeSeries,
} from "@grafana/ui";
import { lastValueFrom } from "rxjs";
import { BarChart, Heatmap, StateTimeline } from "./drawn";
import { registry } from "./registry";

const COLUMN = 60;
const ROW = 38;
const STEP = 38;

standardTransformersRegistry.setInit(() =>
  [...new Map(Object.values(standardTransformers).map((one: any) => [one.id, one])).values()].map((transformation: any) => ({
    id: transformation.id, name: transformation.name, transformation: async () => transformation,
    editor: () => null, imageDark: "", imageLight: "",
  })) as any,
);

const theme = createTheme({ colors: { mode: new URLSearchParams(location.search).get("theme") === "light" ? "light" : "dark" } });
const failed: string[] = [];
(window as any).failed = failed;

class Guard extends Component<{ name: string; children: ReactNode }, { error?: Error }> {
  state: { error?: Error } = {};
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  componentDidCatch(error: Error) {
    failed.push(`${this.props.name}: ${error.stack ?? error}`);
  }
  render() {
    return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children;
  }
}

function Marks({ config, marks }: { config: any; marks: any[] }) {
  useLayoutEffect(() => {
    config.addHook("draw", (u: any) => {
      const { ctx, bbox } = u;
      ctx.save();
      for (const mark of marks) {
        const x0 = Math.max(u.valToPos(mark.from, "x", true), bbox.left);
        const x1 = Math.min(u.valToPos(mark.to, "x", true), bbox.left + bbox.width);
        ctx.fillStyle = `${mark.colour}22`;
        ctx.fillRect(x0, bbox.top, x1 - x0, bbox.height);
        ctx.fillStyle = mark.colour;
        ctx.fillRect(x0, bbox.top, 1.5, bbox.height);
        ctx.fillRect(x0, bbox.top + bbox.height, x1 - x0, 4);
      }
      ctx.restore();
    });
  }, [config]);
  return null;
}

interface Shown { panel: any; frames: DataFrame[]; width: number; height: number; range: TimeRange; marks: any[] }

function Singles({ panel, frames, width, height, range }: Shown) {
  const values = getFieldDisplayValues({
    data: frames, fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text: string) => text, theme, timeZone: "utc", sparkline: panel.options.graphMode === "area",
  } as any);
  const each = panel.type === "stat" ? height / values.length : Math.min(height / Math.max(values.length, 1), panel.options.maxVizHeight + 6);
  return (
    <div>
      {values.map((value, place) =>
        panel.type === "stat" ? (
          <BigValue key={place} value={value.display} sparkline={value.sparkline as any} width={width} height={each}
            theme={theme as any} colorMode={panel.options.colorMode} graphMode={panel.options.graphMode}
            justifyMode={panel.options.justifyMode} textMode={panel.options.textMode} />
        ) : (
          <div key={place} style={{ height: each, overflow: "hidden" }}>
            <BarGauge value={value.display} field={value.field as any} width={width} height={each - 6} theme={theme as any}
              display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)} orientation={panel.options.orientation}
              displayMode={panel.options.displayMode} valueDisplayMode={panel.options.valueMode} namePlacement={panel.options.namePlacement}
              showUnfilled={panel.options.showUnfilled} alignmentFactors={{ title: longest(values), text: "0000.00 GPU-h" }}
              itemSpacing={6} lcdCellWidth={12} isOverflow={false} />
          </div>
        ),
      )}
    </div>
  );
}

const longest = (values: any[]) => values.map((value) => value.display.title ?? "").reduce((a, b) => (a.length > b.length ? a : b), "");

function Body(shown: Shown) {
  const { panel, frames, width, height, range, marks } = shown;
  const drawn = {
    frames, width, height, theme, options: panel.options,
    from: range.from.valueOf(), to: range.to.valueOf(),
  };
  const rows = frames.reduce((sum, frame) => sum + frame.length, 0);
  if (rows === 0 && panel.type !== "stat")
    return <div style={{ textAlign: "center", paddingTop: height / 2 - 20, color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
  switch (panel.type) {
    case "stat":
    case "bargauge":
      return <Singles {...shown} />;
    case "table":
      return <Table data={frames[0]} width={width} height={height} initialSortBy={panel.options.sortBy} />;
    case "heatmap":
      return <Heatmap {...drawn} />;
    case "state-timeline":
      return <StateTimeline {...drawn} />;
    case "barchart":
      return <BarChart {...drawn} />;
    default: {
      const trend = panel.type === "trend";
      const fields = trend
        ? { x: fieldMatchers.get(FieldMatcherID.byName).get(panel.options.xField), y: fieldMatchers.get(FieldMatcherID.byTypes).get(new Set(["number"]) as any) }
        : undefined;
      return (
        <TimeSeries frames={frames} fields={fields as any} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height}
          legend={panel.options.legend} options={panel.options}>
          {(config: any) => (trend ? null : <Marks config={config} marks={marks} />)}
        </TimeSeries>
      );
    }
  }
}

async function prepared(panel: any, told: any[]): Promise<DataFrame[]> {
  const frames = told.map((frame) => toDataFrame(frame));
  const changed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], frames, { interpolate: (text: string) => text } as any));
  return applyFieldOverrides({
    data: changed, fieldConfig: panel.fieldConfig, replaceVariables: (text: string) => text, theme,
    timeZone: "utc", fieldConfigRegistry: registry as any,
  } as any);
}

function Dashboard({ told, frames }: { told: any; frames: Record<string, DataFrame[]> }) {
  const place = (panel: any) => ({
    position: "absolute" as const, left: panel.gridPos.x * COLUMN + 8, top: panel.gridPos.y * STEP + 52,
    width: panel.gridPos.w * COLUMN - 8, height: panel.gridPos.h * ROW - 8,
  });
  const bottom = Math.max(...told.dashboard.panels.map((panel: any) => panel.gridPos.y + panel.gridPos.h));
  return (
    <div id="dashboard" style={{ position: "relative", width: 24 * COLUMN + 8, height: bottom * STEP + 60, background: theme.colors.background.canvas, color: theme.colors.text.primary, fontFamily: theme.typography.fontFamily }}>
      <div style={{ padding: "14px 12px", fontSize: 20 }}>
        {told.dashboard.title}
        <span style={{ fontSize: 13, marginLeft: 24, color: theme.colors.text.secondary }}>{told.chosen}</span>
      </div>
      {told.dashboard.panels.map((panel: any) => {
        const at = place(panel);
        if (panel.type === "row")
          return <div key={panel.id} data-panel={panel.title} style={{ ...at, fontSize: 16, fontWeight: 500, paddingTop: 6 }}>⌄ {panel.title}</div>;
        const lanes = panel.type === "state-timeline" && panel.datasource.uid === "${sql}";
        const range = span(lanes ? told.zoomed : told.range);
        return (
          <div key={panel.id} data-panel={panel.title} style={at}>
            <PanelChrome title={panel.title} description={panel.description} width={at.width} height={at.height}>
              {(width: number, height: number) => (
                <Guard name={panel.title}>
                  <PanelContextProvider value={{ eventBus: bus, eventsScope: "x", sync: () => 0 } as any}>
                    <Body panel={panel} frames={frames[panel.id]} width={width} height={height} range={range} marks={told.marks} />
                  </PanelContextProvider>
                </Guard>
              )}
            </PanelChrome>
          </div>
        );
      })}
    </div>
  );
}

const bus: any = { publish() {}, getStream: () => ({ subscribe: () => ({ unsubscribe() {} }), pipe: () => ({ subscribe: () => ({ unsubscribe() {} }) }) }), subscribe: () => ({ unsubscribe() {} }), newScopedBus: () => bus, removeAllListeners() {} };

function span(range: { from: number; to: number }): TimeRange {
  const [from, to] = [dateTime(range.from), dateTime(range.to)];
  return { from, to, raw: { from, to } };
}

async function start() {
  const name = new URLSearchParams(location.search).get("dashboard");
  const told = await (await fetch(`/data/${name}.json`)).json();
  const frames: Record<string, DataFrame[]> = {};
  for (const panel of told.dashboard.panels)
    if (panel.type !== "row") {
      try {
        frames[panel.id] = await prepared(panel, told.frames[panel.id]);
      } catch (error) {
        failed.push(`${panel.title}: ${(error as Error).stack}`);
        frames[panel.id] = [];
      }
    }
  createRoot(document.getElementById("root")!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Dashboard told={told} frames={frames} />
      <PortalContainer />
    </ThemeContext.Provider>,
  );
  setTimeout(() => document.body.setAttribute("data-done", "1"), 1500);
}

void start();
