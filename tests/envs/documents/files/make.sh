#!/usr/bin/env bash
# Makes the documents of this folder again, from report.md, talk.md, rules.ms, berths.roff and ships.csv.
# Debian: apt-get install pandoc ghostscript groff gnumeric weasyprint chromium
set -euo pipefail
cd "$(dirname "$0")"
for format in docx html epub ipynb; do pandoc report.md --standalone --output "pandoc.$format"; done
sed -i "s/[ \t]*$//" pandoc.html
pandoc talk.md --standalone --output pandoc.pptx
weasyprint --quiet pandoc.html weasyprint.pdf
chromium --headless --no-pdf-header-footer --print-to-pdf=chromium.pdf pandoc.html
ssconvert ships.csv gnumeric.xlsx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
groff -ms -Tps rules.ms >"$work/rules.ps"
gs=(gs -q -dNOPAUSE -dBATCH)
"${gs[@]}" -sDEVICE=pdfwrite -sOutputFile=groff.pdf "$work/rules.ps"
"${gs[@]}" -sDEVICE=pdfwrite -sOwnerPassword=owner -sUserPassword=harbour -dEncryptionR=3 \
  -dKeyLength=128 -sOutputFile=locked.pdf "$work/rules.ps"
"${gs[@]}" -sDEVICE=pdfimage8 -r60 -sOutputFile=scan.pdf "$work/rules.ps"
groff -t -Tps berths.roff >"$work/berths.ps"
"${gs[@]}" -sDEVICE=pdfwrite -sOutputFile=berths.pdf "$work/berths.ps"
