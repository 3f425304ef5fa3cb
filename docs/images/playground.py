"""Take the README's picture of the playground: `python docs/images/playground.py URL [PROMPT]`.

Needs a running `rho-eos serve`, Playwright and Debian's Chromium. The picture is of a real run,
stopped part of the way through, so that filled positions, fresh ones and MASKs are all seen.
"""

import sys
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).with_suffix(".png")
PROMPT = (  # long enough for a canvas that grows
    "Mia has 8 plums. 1) buys 6. 2) eats 5. 3) finds 7. 4) sells 9. 5) wins 4. 6) drops 3. "
    "How many are left?"
)
SHARE = 0.45  # of the run that has been played


def main(url: str, prompt: str = PROMPT) -> None:
    asked = {"prompt": prompt}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--hide-scrollbars"]
        )
        viewport = {"width": 1240, "height": 1090}
        page = browser.new_page(viewport=viewport, device_scale_factor=1.5, color_scheme="light")
        page.set_default_timeout(300_000)
        page.goto(f"{url}/#{urlencode(asked)}")
        page.click("#run:enabled")
        page.wait_for_selector("#scrubber:enabled")
        page.wait_for_selector('#run[data-busy="false"]')
        scrubber = page.locator("#scrubber")
        forwards = int(scrubber.get_attribute("max") or 0)
        scrubber.fill(str(round(forwards * SHARE)))
        page.wait_for_timeout(1500)  # let the fading colours settle
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
