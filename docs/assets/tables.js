// Tables that are wider than the page can be scrolled with the keyboard, too.
document$.subscribe(() => {
  const wraps = [...document.querySelectorAll(".md-typeset__scrollwrap")];
  wraps.forEach((wrap, at) => {
    if (wrap.scrollWidth > wrap.clientWidth) {
      wrap.tabIndex = 0;
      wrap.setAttribute("role", "region");
      wrap.setAttribute("aria-label", `Table ${at + 1} of ${wraps.length}`);
    }
  });
});
