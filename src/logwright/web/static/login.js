// The form for the token: say so if the last one was wrong.
if (location.search === "?again") document.getElementById("again").hidden = false;
