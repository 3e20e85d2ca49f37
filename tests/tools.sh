#!/usr/bin/env bash
# Make sure that the programs which the tests call are there, or say what to install.
# As root on Debian or Ubuntu the missing ones are installed; nothing is skipped in silence.
set -euo pipefail

declare -A package=([promtool]=prometheus [prometheus]=prometheus [amtool]=prometheus-alertmanager [openssl]=openssl [chromium]=chromium [chromedriver]=chromium-driver)
missing=()
for program in "${!package[@]}"; do
  command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "installing what the tests need: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  exit 0
fi
echo "the tests need programs that are not here; install: ${missing[*]}  (Debian, Ubuntu: sudo apt-get install ${missing[*]})" >&2
exit 1
