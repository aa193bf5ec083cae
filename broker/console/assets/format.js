// Numbers, sizes and times as people read them. Unknown values are shown as a dash.

export const DASH = "–";
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const number = (value) => (known(value) ? whole.format(value) : DASH);
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
export const decimal = (value) => (known(value) ? short.format(value) : DASH);

export function bytes(value) {
  if (!known(value)) return DASH;
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit ? short.format(size) : whole.format(size)} ${units[unit]}`;
}

export const perSecond = (value) => (known(value) ? `${bytes(value)}/s` : DASH);
export const rate = (value) => (known(value) ? `${value < 10 ? short.format(value) : whole.format(value)}/s` : DASH);
export const percent = (value) => (known(value) ? `${short.format(value * 100)} %` : DASH);
export const millis = (value) => (known(value) ? `${value < 10 ? short.format(value) : whole.format(value)} ms` : DASH);

export function duration(ms) {
  if (!known(ms)) return DASH;
  const s = ms / 1000;
  if (s < 60) return `${short.format(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const iso = (ms) => (known(ms) && Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString() : String(ms));

export function moment(ms) {
  if (!known(ms) || ms < 0 || ms > 8.64e15) return DASH;
  const date = new Date(ms);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}
