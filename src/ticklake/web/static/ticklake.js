// Shared by all pages: the token for changes, selects that submit their form, copy buttons.
"use strict";
(() => {
  const KEY = "ticklake-token:" + document.body.dataset.prefix;
  const fragment = new URLSearchParams(location.hash.slice(1));
  if (fragment.has("token")) {
    sessionStorage.setItem(KEY, fragment.get("token"));
    history.replaceState(null, "", location.pathname + location.search);
  }

  document.addEventListener("htmx:configRequest", (event) => {
    const token = sessionStorage.getItem(KEY);
    if (event.detail.verb !== "get" && token) event.detail.headers.Authorization = `Bearer ${token}`;
  });

  // Show the reason of a refused request.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, target } = event.detail;
    if (xhr.status === 401) ask(event.detail.requestConfig);
    else if (xhr.status >= 400) {
      const note = document.createElement("p");
      note.className = "note problem";
      note.setAttribute("role", "alert");
      note.textContent = refusal(xhr);
      target.replaceChildren(note);
    }
  });

  function refusal(xhr) {
    try { return JSON.parse(xhr.responseText).error.message; } catch { return `The server answered ${xhr.status}.`; }
  }

  function ask(request) {
    const dialog = document.getElementById("ask-token");
    const field = document.getElementById("token");
    sessionStorage.removeItem(KEY);
    dialog.showModal();
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "go" && field.value) {
        sessionStorage.setItem(KEY, field.value.trim());
        field.value = "";
        htmx.trigger(request.elt, request.triggeringEvent ? request.triggeringEvent.type : "submit");
      }
    }, { once: true });
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copies]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
    button.textContent = "copied";
  });
})();
