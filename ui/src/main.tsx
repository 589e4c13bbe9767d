// Entry point of the page.
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/palette.css";
import "./style/base.css";
import "./style/frame.css";
import "./style/topology.css";
import "./style/policies.css";
import "./style/packets.css";
import { prefetch } from "./api/resource";
import { start } from "./api/session";
import { App } from "./app";
import { route } from "./parts/route";
import { WHOLE_FABRIC } from "./views/topology-data";

const page = document.getElementById("page")!;
page.textContent = "";
render(<App />, page);
if (route.value.parts[0] === "topology") prefetch(WHOLE_FABRIC);
void start();
