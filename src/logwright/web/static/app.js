// The router: the part of the address after # names the view.
import { clear, failure, get, h } from "./lib.js";
import { overview } from "./overview.js";
import { journal } from "./journal.js";
import { sql } from "./sql.js";

const main = document.getElementById("main");
let shown = new AbortController();

// Each view has an element and a signal of its own: what a slow view draws after it was left is not shown, and its
// requests and streams end.
async function show() {
  shown.abort();
  shown = new AbortController();
  const page = h("div", {}, h("p", { class: "muted page" }, "Loading …"));
  clear(main, page);
  try {
    await draw(page, shown.signal);
  } catch (error) {
    clear(page, h("div", { class: "page" }, failure(error)));
  }
}

async function draw(page, signal) {
  const [path, rest = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...parts] = path.split("/");
  for (const link of document.querySelectorAll("[data-nav]")) {
    if (link.dataset.nav === (view || "overview")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const [name = "", tab = "records"] = parts.map(decodeURIComponent);
  const query = Object.fromEntries(new URLSearchParams(rest));
  document.title = [view === "journal" ? name : view === "sql" ? "SQL" : "", "Logwright"].filter(Boolean).join(" – ");
  if (view === "") await overview(page, signal);
  else if (view === "journal") await journal(page, signal, name, tab, query);
  else if (view === "sql") await sql(page, signal, query);
  else throw new Error("There is no such page.");
}

// The link jumps to the contents of this view; its address is not that of a view.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); window.scrollTo(0, 0); });
show();
get("about").then((found) => { document.getElementById("root").textContent = found.root; }).catch(() => {});
