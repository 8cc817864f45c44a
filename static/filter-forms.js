/* Forms that narrow a list: sent as soon as something is chosen, and without what was left empty, so that addresses stay
   short. Without scripts a button does the same. */

for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
  form.addEventListener("change", (event) => {
    if (event.target.matches("select, [type=checkbox], [type=radio]")) form.requestSubmit();
  });
  form.addEventListener("formdata", ({ formData }) => {
    // oxlint-disable-next-line no-useless-spread -- deleting from a FormData changes what a loop over it sees
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
}
