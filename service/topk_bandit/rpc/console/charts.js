// Line charts over time, with their numbers as a table for those who can't see lines.

import { clock, instant, number } from "./figures.js";
import { element, shape, table } from "./elements.js";

const WIDTH = 480, HEIGHT = 200, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 26;
const MARKS = 4;

// Steps of 1, 2 or 5 times a power of ten, that reach over all values.
export function ticks(low, high) {
  if (low === high) return ticks(low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2);
  const rough = (high - low) / MARKS, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

function scales(times, values, floor) {
  const low = Math.min(floor, ...values), high = Math.max(...values, floor === 0 ? 0 : floor);
  const marks = ticks(low, high), from = times[0], span = times.at(-1) - from || 1;
  return {
    marks, from, span,
    x: (time) => LEFT + ((time - from) / span) * (WIDTH - LEFT - RIGHT),
    y: (value) => HEIGHT - BOTTOM - ((value - marks[0]) / (marks.at(-1) - marks[0])) * (HEIGHT - TOP - BOTTOM),
  };
}

function grid({ marks, from, span, x, y }, show) {
  const lines = marks.flatMap((mark) => [
    shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(mark), y2: y(mark) }),
    shape("text", { class: "tick", x: LEFT - 6, y: y(mark) + 4, "text-anchor": "end" }, show(mark)),
  ]);
  const times = [["start", 0], ["middle", 0.5], ["end", 1]].map(([anchor, part]) =>
    shape("text", { class: "tick", x: x(from + part * span), y: HEIGHT - 8, "text-anchor": anchor }, clock(from + part * span, span)));
  return [...lines, ...times];
}

function line(series, index, times, scale) {
  const seen = series.values.map((value, at) => [times[at], value]).filter(([, value]) => value !== undefined && value !== null);
  if (seen.length === 0) return [];
  const points = seen.map(([time, value]) => `${scale.x(time).toFixed(1)},${scale.y(value).toFixed(1)}`);
  const [time, value] = seen.at(-1);
  return [
    shape("polyline", { class: `line line-${index}`, points: points.join(" ") }),
    shape("circle", { class: `dot dot-${index}`, cx: scale.x(time), cy: scale.y(value), r: 3 }),
  ];
}

const ROW = 18, NAMES = 150, LONGEST = 22;

const shorten = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

// `rows` are {name, mean, deviation}, one below the other: a dot each, a thick line to one deviation and a thin one to two.
export function whiskers(id, title, rows) {
  const low = Math.min(...rows.map((row) => row.mean - 2 * row.deviation)), high = Math.max(...rows.map((row) => row.mean + 2 * row.deviation));
  const marks = ticks(low, high), bottom = TOP + ROW * rows.length;
  const x = (value) => NAMES + ((value - marks[0]) / (marks.at(-1) - marks[0])) * (WIDTH - NAMES - RIGHT);
  const reach = (row, y, times, kind) => shape("line", { class: `line ${kind}`, x1: x(row.mean - times * row.deviation), x2: x(row.mean + times * row.deviation), y1: y, y2: y });
  const scale = marks.flatMap((mark) => [
    shape("line", { class: "grid", x1: x(mark), x2: x(mark), y1: TOP, y2: bottom }),
    shape("text", { class: "tick", x: x(mark), y: bottom + 16, "text-anchor": "middle" }, number(mark)),
  ]);
  const drawn = rows.flatMap((row, at) => {
    const y = TOP + ROW * (at + 0.5);
    return [
      shape("text", { class: "tick", x: NAMES - 8, y: y + 4, "text-anchor": "end" }, shorten(row.name)),
      reach(row, y, 2, "whisker"), reach(row, y, 1, "whisker-thick"), shape("circle", { class: "dot dot-0", cx: x(row.mean), cy: y, r: 3 }),
    ];
  });
  const said = `${title}. Best: ${rows.slice(0, 3).map((row) => row.name).join(", ")}.`;
  return element("figure", { id }, element("figcaption", {}, title),
    shape("svg", { viewBox: `0 0 ${WIDTH} ${bottom + 24}`, role: "img", "aria-label": said }, scale, drawn),
    element("details", {}, element("summary", {}, "As numbers"),
      table(title, ["Item", "#Utility", "#Standard deviation"], rows.map((row) => [row.name, number(row.mean), number(row.deviation)]))));
}

// `series` are {name, values}: a value for each time, or none. `show` writes a value.
export function chart(id, title, stamps, series, { show = number, floor = 0 } = {}) {
  const times = stamps.map((stamp) => Date.parse(stamp));
  const values = series.flatMap((one) => one.values).filter((value) => value !== undefined && value !== null);
  const last = series.map((one) => `${one.name} ${show(one.values.findLast((value) => value !== undefined && value !== null))}`);
  const legend = element("p", { class: "legend" }, series.map((one, at) =>
    element("span", {}, shape("svg", { class: "key", viewBox: "0 0 20 8", "aria-hidden": "true" },
      shape("line", { class: `line line-${at}`, x1: 0, x2: 20, y1: 4, y2: 4 })), ` ${last[at]}`)));
  if (values.length === 0) return element("figure", { id }, element("figcaption", {}, title), element("p", { class: "soft" }, "nothing yet"));
  const scale = scales(times, values, floor);
  const drawn = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. Newest: ${last.join(", ")}.` },
    grid(scale, show), series.flatMap((one, at) => line(one, at, times, scale)));
  const rows = stamps.map((stamp, at) => [instant(stamp), ...series.map((one) => show(one.values[at]))]).reverse();
  const numbers = element("details", { id: `${id}-numbers` }, element("summary", {}, "As numbers"));
  const fill = () => {
    if (numbers.open && numbers.children.length === 1) numbers.append(table(title, ["until", ...series.map((one) => `#${one.name}`)], rows));
  };
  numbers.addEventListener("toggle", fill);
  return element("figure", { id }, element("figcaption", {}, title), legend, drawn, numbers);
}
