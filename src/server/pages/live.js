"use strict";
// Keeps a page that changes up to date: asks for it again, and puts its live part in place of the old one. Without this
// script the browser asks again by itself.
(() => {
  const every = 1000; // milliseconds
  const renew = async () => {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const id of ["state", "live"]) {
          const now = document.getElementById(id);
          const then = page.getElementById(id);
          if (now && then && now.innerHTML !== then.innerHTML && !now.contains(document.activeElement)) {
            now.replaceChildren(...then.childNodes);
          }
        }
      }
    } catch {
      // The mirror is away; the next turn asks again.
    }
    setTimeout(renew, every);
  };
  setTimeout(renew, every);
})();
