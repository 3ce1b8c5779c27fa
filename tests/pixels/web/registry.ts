// The properties of fields that our panels set. In Grafana every panel plugin registers its own.
import { FieldConfigOptionsRegistry, FieldType } from "@grafana/data";

const STANDARD = [
  "unit", "decimals", "min", "max", "links", "mappings", "color", "thresholds", "noValue",
  "displayName",
];
const CUSTOM = [
  "lineWidth", "lineStyle", "fillOpacity", "axisPlacement", "axisLabel", "hideFrom", "spanNulls",
  "drawStyle", "showPoints", "stacking", "lineInterpolation", "gradientMode", "insertNulls", "hidden", "minWidth",
  "axisSoftMax", "align", "barAlignment", "cellOptions", "inspect", "pointSize", "scaleDistribution", "thresholdsStyle",
];

function item(name: string, isCustom: boolean): any {
  return {
    id: isCustom ? `custom.${name}` : name, path: name, name, description: name, isCustom,
    settings: {}, process: (value: unknown) => value, override: () => null, editor: () => null,
    shouldApply: (field: { type: FieldType }) => field.type !== undefined,
    getItemsCount: () => 0,
  };
}

export const registry = new FieldConfigOptionsRegistry(() => [
  ...STANDARD.map((name) => item(name, false)),
  ...CUSTOM.map((name) => item(name, true)),
]);
