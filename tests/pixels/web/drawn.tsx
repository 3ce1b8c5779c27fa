// Stand-ins for the three panels that Grafana keeps in its application and not in @grafana/ui:
// heatmap, state timeline, bar chart. They read the same options and field settings.
import { useLayoutEffect, useRef } from "react";
import { formattedValueToString, getFieldDisplayName, type DataFrame, type Field, type GrafanaTheme2 } from "@grafana/data";

export interface Drawn {
  frames: DataFrame[];
  options: any;
  width: number;
  height: number;
  theme: GrafanaTheme2;
  from: number;
  to: number;
}

type Paint = (context: CanvasRenderingContext2D) => void;

function Canvas({ width, height, paint }: { width: number; height: number; paint: Paint }) {
  const ref = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const canvas = ref.current!;
    const ratio = window.devicePixelRatio;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d")!;
    context.scale(ratio, ratio);
    context.font = "12px Inter, Helvetica, Arial, sans-serif";
    paint(context);
  });
  return <canvas ref={ref} style={{ width, height }} />;
}

interface Lane { name: string; field: Field; times: number[] }

function lanesOf(frames: DataFrame[]): Lane[] {
  return frames.flatMap((frame) => {
    const time = frame.fields.find((field) => field.type === "time")!;
    return frame.fields
      .filter((field) => field.type === "number")
      .map((field) => ({ name: getFieldDisplayName(field, frame, frames), field, times: time.values as number[] }));
  });
}

function timeAxis(context: CanvasRenderingContext2D, drawn: Drawn, left: number, bottom: number) {
  const span = drawn.to - drawn.from;
  const most = Math.max(1, Math.floor((drawn.width - left) / 80));
  const every = [1, 2, 5, 15, 30, 60, 120, 300].map((s) => s * 1000).find((ms) => span / ms <= most) ?? 600000;
  context.fillStyle = drawn.theme.colors.text.secondary;
  context.textAlign = "center";
  for (let at = Math.ceil(drawn.from / every) * every; at < drawn.to; at += every) {
    const x = left + ((at - drawn.from) / span) * (drawn.width - left);
    context.fillText(new Date(at).toISOString().slice(11, 19), x, bottom);
  }
}

export function StateTimeline(drawn: Drawn) {
  const lanes = lanesOf(drawn.frames);
  const paint: Paint = (context) => {
    const left = Math.min(180, 12 + Math.max(...lanes.map((lane) => context.measureText(lane.name).width)));
    const bottom = drawn.height - (drawn.options.legend.showLegend ? 38 : 18);
    const pitch = bottom / lanes.length;
    const at = (time: number) => left + ((time - drawn.from) / (drawn.to - drawn.from)) * (drawn.width - left);
    const custom = lanes[0].field.config.custom ?? {};
    lanes.forEach(({ name, field, times }, row) => {
      context.fillStyle = drawn.theme.colors.text.primary;
      context.textAlign = "right";
      context.fillText(name, left - 8, pitch * (row + 0.5) + 4, left - 10);
      const known = times.map((time, place) => [time, field.values[place]] as const)
        .filter(([, value]) => (custom.spanNulls ? value != null : true));
      const typical = times.length > 1 ? times[1] - times[0] : 0;
      for (let place = 0; place < known.length; place++) {
        const [time, value] = known[place];
        if (value == null || time > drawn.to) continue;
        let until = place;
        // mergeValues: equal neighbours are one state.
        while (until + 1 < known.length && known[until + 1][1] === value
          && (custom.spanNulls || known[until + 1][0] - known[until][0] < typical * 1.9)) until++;
        const next = known[until + 1];
        const gap = !custom.spanNulls && (!next || next[0] - known[until][0] > typical * 1.9);
        const end = gap ? known[until][0] + typical : next ? next[0] : drawn.to;
        const shown = field.display!(value);
        const [x0, x1] = [Math.max(at(time), left), Math.min(at(end), drawn.width)];
        place = until;
        if (x1 <= x0) continue;
        context.globalAlpha = (custom.fillOpacity ?? 70) / 100;
        context.fillStyle = shown.color ?? "#888";
        const high = pitch * drawn.options.rowHeight;
        context.fillRect(x0, pitch * row + (pitch - high) / 2, x1 - x0, high);
        context.globalAlpha = 1;
        const text = formattedValueToString(shown);
        if (drawn.options.showValue === "auto" && context.measureText(text).width < x1 - x0 - 8) {
          context.fillStyle = drawn.theme.colors.getContrastText(shown.color ?? "#888");
          context.textAlign = "left";
          context.fillText(text, x0 + 4, pitch * (row + 0.5) + 4);
        }
      }
    });
    timeAxis(context, drawn, left, bottom + 14);
    if (drawn.options.legend.showLegend) legend(context, drawn, lanes[0].field);
  };
  return <Canvas width={drawn.width} height={drawn.height} paint={paint} />;
}

function legend(context: CanvasRenderingContext2D, drawn: Drawn, field: Field) {
  let x = 12;
  const words = field.config.mappings!.flatMap((mapping: any) => Object.values(mapping.options)) as any[];
  for (const { text, color } of words.filter((word) => word.text.trim() && word.color !== "transparent")) {
    context.fillStyle = color;
    context.fillRect(x, drawn.height - 10, 14, 4);
    context.fillStyle = drawn.theme.colors.text.primary;
    context.textAlign = "left";
    context.fillText(text, x + 18, drawn.height - 4);
    x += 34 + context.measureText(text).width;
  }
}

// The scheme "Oranges" of d3-scale-chromatic, as Grafana takes it; dark themes invert it.
const ORANGES = ["#fff5eb", "#fee6ce", "#fdd0a2", "#fdae6b", "#fd8d3c", "#f16913", "#d94801", "#a63603", "#7f2704"];

export function Heatmap(drawn: Drawn) {
  const lanes = lanesOf(drawn.frames);
  const { min, max } = drawn.options.color;
  const scheme = drawn.theme.isDark ? [...ORANGES].reverse() : ORANGES;
  const paint: Paint = (context) => {
    const left = 70;
    const bottom = drawn.height - 18;
    const pitch = bottom / lanes.length;
    lanes.forEach(({ name, field, times }, order) => {
      const row = drawn.options.yAxis.reverse ? order : lanes.length - 1 - order;
      const step = times.length > 1 ? times[1] - times[0] : drawn.to - drawn.from;
      if (pitch >= 12 || row % Math.ceil(12 / pitch) === 0) {
        context.fillStyle = drawn.theme.colors.text.secondary;
        context.textAlign = "right";
        context.fillText(name, left - 8, pitch * (row + 0.5) + 4, left - 10);
      }
      times.forEach((time, place) => {
        const value = field.values[place];
        if (value == null || Number.isNaN(value)) return;
        const share = Math.min(Math.max((value - min) / (max - min), 0), 1);
        const width = (step / (drawn.to - drawn.from)) * (drawn.width - left);
        const x = left + ((time - drawn.from) / (drawn.to - drawn.from)) * (drawn.width - left);
        context.fillStyle = mixed(scheme, share);
        context.fillRect(x, pitch * row, width - drawn.options.cellGap, pitch - drawn.options.cellGap);
      });
    });
    timeAxis(context, drawn, left, drawn.height - 4);
  };
  return <Canvas width={drawn.width} height={drawn.height} paint={paint} />;
}

function mixed(scheme: string[], share: number): string {
  const place = share * (scheme.length - 1);
  const [low, high] = [scheme[Math.floor(place)], scheme[Math.ceil(place)]];
  const part = (colour: string, at: number) => parseInt(colour.slice(at, at + 2), 16);
  const rgb = [1, 3, 5].map((at) => Math.round(part(low, at) + (part(high, at) - part(low, at)) * (place % 1)));
  return `rgb(${rgb.join(",")})`;
}

export function BarChart(drawn: Drawn) {
  const frame = drawn.frames[0];
  const names = frame.fields.find((field) => field.name === drawn.options.xField)!.values as string[];
  const values = frame.fields.filter((field) => field.type === "number");
  const stacked = drawn.options.stacking === "normal";
  const sums = names.map((_, place) => values.map((field) => field.values[place] ?? 0));
  const top = Math.max(...sums.map((row) => (stacked ? row.reduce((a, b) => a + b, 0) : Math.max(...row)))) * 1.05;
  const paint: Paint = (context) => {
    const left = 62;
    const bottom = drawn.height - 40;
    const pitch = (drawn.width - left) / names.length;
    const high = (value: number) => (value / top) * bottom;
    context.textAlign = "right";
    for (let part = 0; part <= 4; part++) {
      context.fillStyle = drawn.theme.colors.text.secondary;
      const shown = formattedValueToString(values[0].display!((top * part) / 4));
      context.fillText(shown, left - 8, bottom - (bottom * part) / 4 + (part === 4 ? 10 : 4));
      context.fillStyle = drawn.theme.colors.border.weak;
      context.fillRect(left, bottom - (bottom * part) / 4, drawn.width - left, 1);
    }
    names.forEach((name, place) => {
      let base = 0;
      const group = pitch * drawn.options.groupWidth;
      values.forEach((field, which) => {
        const value = field.values[place] ?? 0;
        const wide = stacked ? pitch * drawn.options.barWidth : (group / values.length) * drawn.options.barWidth;
        const inset = stacked ? (pitch - wide) / 2 : (pitch - group) / 2 + (group / values.length) * which;
        context.globalAlpha = (field.config.custom?.fillOpacity ?? 80) / 100;
        context.fillStyle = drawn.theme.visualization.getColorByName(field.config.color!.fixedColor!);
        context.fillRect(left + pitch * place + inset, bottom - high(base) - high(value), wide, high(value));
        context.globalAlpha = 1;
        if (stacked) base += value;
      });
      context.fillStyle = drawn.theme.colors.text.secondary;
      context.textAlign = "center";
      if (pitch > 18 || place % Math.ceil(18 / pitch) === 0) context.fillText(name, left + pitch * (place + 0.5), bottom + 15);
    });
    let x = left;
    values.forEach((field) => {
      context.fillStyle = drawn.theme.visualization.getColorByName(field.config.color!.fixedColor!);
      context.fillRect(x, drawn.height - 10, 14, 4);
      context.fillStyle = drawn.theme.colors.text.secondary;
      context.textAlign = "left";
      const name = getFieldDisplayName(field, frame, drawn.frames);
      context.fillText(name, x + 18, drawn.height - 4);
      x += 34 + context.measureText(name).width;
    });
  };
  return <Canvas width={drawn.width} height={drawn.height} paint={paint} />;
}
