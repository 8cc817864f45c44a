/* Forms that command: a field is said to be wrong where the server says so beside it. */

function mark() {
  for (const said of document.querySelectorAll(".wrong[id]")) {
    for (const field of document.querySelectorAll(`[aria-describedby~="${CSS.escape(said.id)}"]`)) {
      if (said.textContent.trim()) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
  }
}

document.addEventListener("htmx:after:swap", mark);
mark();
