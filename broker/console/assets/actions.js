// Dialogs of actions: fields, a confirmation, and the node's answer as a sentence.

import { act } from "./api.js";
import { h, replace } from "./dom.js";

function input(field) {
  if (field.choices) return h("select", { name: field.name }, field.choices.map((choice) => h("option", { value: choice }, choice)));
  if (field.type === "lines") return h("textarea", { name: field.name, spellcheck: "false" });
  return h("input", { name: field.name, type: field.type || "text", value: field.value || "", required: field.required, autocomplete: "off" });
}

function lines(text) {
  const values = {};
  for (const line of text.split("\n")) {
    const at = line.indexOf("=");
    if (at > 0) values[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return values;
}

function value(field, control) {
  if (field.type === "number") return Number(control.value);
  return field.type === "lines" ? lines(control.value) : control.value;
}

/** Ask for the fields of an action and run it; `body` makes the request from the values, `done` follows a success. */
export function ask(title, verb, action, fields, body, done) {
  const dialog = document.getElementById("dialog");
  const controls = fields.map((field) => ({ field, control: input(field) }));
  const result = h("p", { class: "result", role: "alert" });
  const submit = h("button", { type: "submit", class: "primary" }, verb);
  const form = h(
    "form",
    null,
    h("h2", { id: "dialog-title" }, title),
    controls.map(({ field, control }) => h("label", null, field.label, control)),
    result,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), submit),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wrong = controls.find(({ field, control }) => field.match && control.value !== field.match);
    if (wrong) {
      result.textContent = `Type ${wrong.field.match} to confirm.`;
      return;
    }
    submit.disabled = true;
    result.textContent = "…";
    try {
      const values = Object.fromEntries(controls.map(({ field, control }) => [field.name, value(field, control)]));
      const answer = await act(action, body(values));
      dialog.close();
      toast(answer.message);
      done();
    } catch (error) {
      result.textContent = error.message;
    } finally {
      submit.disabled = false;
    }
  });
  replace(dialog, form);
  dialog.showModal();
}

let timer = null;

/** Show a sentence for some seconds. */
export function toast(sentence) {
  const notice = document.getElementById("notice");
  notice.className = "notice";
  notice.textContent = sentence;
  notice.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { notice.hidden = true; }, 8000);
}
