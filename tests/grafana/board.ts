// What a dashboard of ours may hold, in Grafana's own types. Its generator writes plain JSON, so what is an enumeration
// there is one of its texts here, and nothing has to be given that Grafana has a default for.
import type { Dashboard, DataQuery, FieldConfig, GraphFieldConfig, Panel, RowPanel } from "@grafana/schema";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type {
  FieldConfig as TimeSeriesFieldConfig,
  Options as TimeSeriesOptions,
} from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Plain<T> = T extends string
  ? `${T}`
  : T extends (infer Entry)[]
    ? Plain<Entry>[]
    : T extends object
      ? { [Name in keyof T]?: Plain<T[Name]> }
      : T;

// The query of Grafana's data source for Prometheus, as its documentation has it: the package has no type for it.
type Query = Pick<DataQuery, "refId"> & {
  datasource: { type: "prometheus"; uid: string };
  expr: string;
  legendFormat: string;
  exemplar?: boolean;
};

type Drawn<Kind extends string, Options, Custom> = Omit<Panel, "type" | "options" | "fieldConfig" | "targets"> & {
  type: Kind;
  options: Plain<Options>;
  fieldConfig: {
    defaults: Plain<Omit<FieldConfig, "custom">> & { custom?: Plain<Custom> };
    overrides: [];
  };
  targets: Query[];
};

export type Board = Omit<Dashboard, "panels"> & {
  panels: (
    | RowPanel
    | Drawn<"stat", StatOptions, never>
    | Drawn<"timeseries", TimeSeriesOptions, TimeSeriesFieldConfig & GraphFieldConfig>
  )[];
};
