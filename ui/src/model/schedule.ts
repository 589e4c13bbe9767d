// Weekly schedules, in the controller's syntax: `Mon-Fri 08:00-18:00; Sat 10:00-12:00`.

/** Whether the controller accepts the schedule. */
export function isSchedule(text: string): boolean {
  const windows = text.split(";").map((part) => part.trim());
  return windows.length <= MOST_WINDOWS && windows.every(isWindow);
}

/** Days, hours, or both, separated by a blank. */
function isWindow(text: string): boolean {
  const [first = "", ...rest] = text.split(" ");
  const hours = rest.join(" ").trim();
  if (rest.length === 0 && first.includes(":")) return isRange(first);
  const areDays = (first === "" && hours !== "") || first.split(",").every(isDays);
  return areDays && (hours === "" || isRange(hours));
}

const isDays = (text: string): boolean => {
  const days = text.toLowerCase().split("-");
  return days.length <= 2 && days.every((day) => DAYS.includes(day));
};

/** `08:00-18:00`; the end may be on the next day. */
function isRange(text: string): boolean {
  const parts = /^(\d\d):([0-5]\d)-(\d\d):([0-5]\d)$/.exec(text)?.slice(1).map(Number);
  if (!parts) return false;
  const [from, to] = [parts[0]! * 60 + parts[1]!, parts[2]! * 60 + parts[3]!];
  return from !== to && from < DAY && to <= DAY;
}

const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/** Minutes. */
const DAY = 24 * 60;
const MOST_WINDOWS = 16;
