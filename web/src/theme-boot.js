/* Runs before the first paint, so that a chosen theme does not flash. Classic script; everything else is a module. */
(function () {
  try {
    var theme = JSON.parse(localStorage.getItem("skald.theme") || '"auto"');
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (_) {
    // no storage: the system's theme stands
  }
})();
