// Figures as people read them.

const counts = new Intl.NumberFormat("en");

export const count = (value) => counts.format(Number(value ?? 0));

export function number(value) {
  if (value === undefined || value === null) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return Number(value.toPrecision(4)).toString();
}

export const signed = (value) => (value > 0 ? `+${number(value)}` : number(value));

export const share = (value) => (value === undefined || value === null ? "–" : `${(100 * value).toFixed(1)} %`);

// How long something takes, as the service's JSON has it ("1800s"), in the largest unit that it fills.
export function duration(text) {
  if (!text) return "–";
  const seconds = Number.parseFloat(text);
  const [unit, name] = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([one]) => seconds >= one) ?? [1, "s"];
  return `${number(seconds / unit)} ${name}`;
}

export const milliseconds = (seconds) => (1000 * seconds).toFixed(1);

export function bytes(value) {
  const size = Number(value);
  if (size < 1024) return `${size} B`;
  return size < 1024 ** 2 ? `${(size / 1024).toFixed(1)} KiB` : `${(size / 1024 ** 2).toFixed(1)} MiB`;
}

export const instant = (text) => (text ? `${text.slice(0, 10)} ${text.slice(11, 19)} UTC` : "–");

export const clock = (milliseconds, span) => {
  const text = new Date(milliseconds).toISOString();
  return span > 3 * 86_400_000 ? text.slice(5, 10) : span > 600_000 ? text.slice(11, 16) : text.slice(11, 19);
};
