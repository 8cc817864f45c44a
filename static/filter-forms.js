/* Filter forms: submitted on each change and without empty fields, so that URLs stay short. Without scripts a button
   submits them. */

for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
  form.addEventListener("change", (event) => {
    if (event.target.matches("select, [type=checkbox], [type=radio]")) form.requestSubmit();
  });
  form.addEventListener("formdata", ({ formData }) => {
    // oxlint-disable-next-line no-useless-spread -- deleting from a FormData changes what a loop over it sees
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
}
