// The router: the part of the address after # names the view.
import { clear, failure, get, h } from "./lib.js";
import { overview } from "./overview.js";
import { journal } from "./journal.js";
import { sql } from "./sql.js";

const main = document.getElementById("main");
let leave = () => {};

async function show() {
  leave();
  leave = () => {};
  const [path, rest = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...parts] = path.split("/").map(decodeURIComponent);
  const query = Object.fromEntries(new URLSearchParams(rest));
  for (const link of document.querySelectorAll("[data-nav]")) {
    const isHere = link.dataset.nav === (view || "overview");
    link.toggleAttribute("aria-current", isHere);
    if (isHere) link.setAttribute("aria-current", "page");
  }
  const leaving = [];
  const onLeave = (call) => leaving.push(call);
  leave = () => leaving.forEach((call) => call());
  // Each view draws into an element of its own: what a slow view draws after it was left is not shown.
  const page = h("div", {}, h("p", { class: "muted" }, "Loading …"));
  clear(main, page);
  try {
    if (view === "") { document.title = "Logwright"; await overview(page, onLeave); }
    else if (view === "journal") { document.title = `${parts[0]} – Logwright`; await journal(page, onLeave, parts[0], parts[1] || "records", query); }
    else if (view === "sql") { document.title = "SQL – Logwright"; await sql(page, onLeave, query); }
    else throw new Error("There is no such page.");
  } catch (error) {
    clear(page, failure(error));
  }
}

// The link jumps to the contents of this view; its address is not that of a view.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); window.scrollTo(0, 0); });
show();
get("about").then((found) => { document.getElementById("root").textContent = found.root; }).catch(() => {});
