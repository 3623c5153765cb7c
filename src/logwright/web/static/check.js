// Verify a journal with progress, and show the plan of a repair. Carrying it out is left to the command line.
import { clear, copyable, counted, failure, h, listen, plainTable, say, size } from "./lib.js";

export async function check(place, signal, about) {
  let source = null;
  const bar = h("progress", { max: 100, value: 0, "aria-label": "Progress of the check", hidden: true });
  const note = h("p", { class: "muted" }, "Everything is read and checked. Nothing is changed, and no lock is taken.");
  const result = h("div", { "aria-live": "polite" });
  const button = h("button", { type: "button", class: "primary", onclick: start }, "Verify");

  function start() {
    source?.close();
    button.disabled = true;
    bar.hidden = false;
    bar.removeAttribute("value");
    clear(result);
    source = listen("check", { name: about.name }, signal, {
      progress: ({ done, total }) => {
        bar.value = (100 * done) / Math.max(1, total);
        note.textContent = `${size(done)} of ${size(total)}`;
      },
      checked: (found) => { finish(); draw(found); },
      failed: (found) => { finish(); clear(result, failure(new Error(found.error))); },
      error: () => { finish(); clear(result, failure(new Error("The server does not answer: the check has ended."))); },
    });
  }
  function finish() {
    source.close();
    source = null;
    bar.hidden = true;
    button.disabled = false;
  }
  function draw(found) {
    note.textContent = `${counted(found.records, "record")}, ${size(found.bytes)} read`;
    say(found.sound ? "The journal is sound" : counted(found.problems_total, "problem"));
    const place = [{ name: "place", cell: (row) => `${row.file} @ ${row.position}` }, { name: "kind", cell: (row) => row.kind }, { name: "message", look: "long", cell: (row) => row.message }];
    clear(result,
      h("p", { class: `notice ${found.sound ? "good" : "bad"}` }, found.sound ? (found.losses_total ? "Sound, with known losses." : "Sound.") : `${counted(found.problems_total, "problem")}.`),
      found.problems.length ? [h("h2", {}, "Problems"), plainTable("Problems", place, found.problems)] : null,
      found.plan ? [h("h2", {}, "What a repair would do"), h("ol", { class: "plan" }, found.plan.lines.map((line) => h("li", {}, line))),
        h("p", { class: "muted" }, "This page changes nothing. To carry out the plan:"), copyable(found.command)] : null,
      found.anomalies.length ? [h("h2", {}, "Odd, but harmless"), plainTable("Anomalies", place, found.anomalies)] : null,
      found.losses.length ? [h("h2", {}, "Known losses"), h("ul", {}, found.losses.map((loss) => h("li", {}, `${loss.what}: ${loss.reason}`)))] : null);
  }
  clear(place, h("div", { class: "line" }, button, bar), note, result);
}
