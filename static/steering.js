/* Forms that command: a field is said to be wrong where the server says so beside it. */

function isWrong(field) {
  const said = field.getAttribute("aria-describedby").split(/\s+/).map((id) => document.getElementById(id));
  return said.some((one) => one?.matches(".wrong") && one.textContent.trim());
}

function mark() {
  for (const field of document.querySelectorAll("#desk [aria-describedby]")) {
    if (isWrong(field)) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}

document.addEventListener("htmx:after:swap", mark);
mark();
