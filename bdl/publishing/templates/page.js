"use strict";

// Tables are sorted by the number that a text begins with, else by the text; rows without one come last.
const number = (text) => {
  const found = parseFloat(text.replace("\u2212", "-"));
  return Number.isNaN(found) ? null : found;
};

const compare = (one, other) => {
  const [a, b] = [number(one), number(other)];
  if (a !== null && b !== null) return a - b;
  return one.localeCompare(other, "en", { numeric: true });
};

document.querySelectorAll("th").forEach((head) => {
  head.addEventListener("click", () => {
    const table = head.closest("table");
    const place = head.cellIndex;
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const text = (row) => row.cells[place].textContent.trim();
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      if (!text(a) || !text(b)) return Number(!text(a)) - Number(!text(b));
      return sign * compare(text(a), text(b));
    });
    table.tBodies[0].append(...rows);
  });
});

const field = document.getElementById("filter");
const buttons = [...document.querySelectorAll(".counts button")];

const filter = () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const pressed = buttons.filter((button) => button.getAttribute("aria-pressed") === "true");
  const verdicts = pressed.map((button) => button.dataset.word);
  document.querySelectorAll("figure.table tbody tr").forEach((row) => {
    const text = row.textContent.toLowerCase();
    const judged = [...row.querySelectorAll(".verdict")].map((each) => each.textContent.replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹\s]+$/, ""));
    const wanted = !verdicts.length || !judged.length || judged.some((each) => verdicts.includes(each));
    row.hidden = !(wanted && words.every((word) => text.includes(word)));
  });
};

field.addEventListener("input", filter);
buttons.forEach((button) => {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    filter();
  });
});

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
