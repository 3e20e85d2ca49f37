// Put what the next page says in place of this one, so that scroll, selection and focus stay.
"use strict";
{
  const live = document.getElementById("live");
  const lost = document.getElementById("lost");
  const period = Number(document.body.dataset.refresh) * 1000;

  const isRead = () => !live.checked || document.hidden || !getSelection().isCollapsed;

  const refresh = async () => {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(answer.statusText);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (next.body.dataset.version !== document.body.dataset.version) return location.reload();
    if (isRead()) return;
    const focus = document.activeElement?.getAttribute("href");
    document.querySelector("main").replaceWith(next.querySelector("main"));
    document.title = next.title;
    if (focus) document.querySelector(`main a[href="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  };

  const turn = async () => {
    if (!isRead()) await refresh().then(() => (lost.hidden = true), () => (lost.hidden = false));
    setTimeout(turn, period);
  };

  live.parentElement.hidden = false;
  setTimeout(turn, period);
}
