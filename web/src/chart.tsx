/** A chart, loaded when a page has one. What it shows stands in a table beside it, too. */

import { LineChart, ParallelChart, ScatterChart } from 'echarts/charts';
import { GridComponent, LegendComponent, ParallelComponent, TooltipComponent } from 'echarts/components';
import { type ECharts, type EChartsCoreOption, init, use as install } from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';
import { useEffect, useRef } from 'react';

install([LineChart, ParallelChart, ScatterChart, GridComponent, LegendComponent, ParallelComponent, TooltipComponent, SVGRenderer]);

const DARK = 'pf-v6-theme-dark';

/** Whether the page is dark now, told again at each change. */
function useIsDark(onChange: (isDark: boolean) => void): void {
  const call = useRef(onChange);
  call.current = onChange;
  useEffect(() => {
    const page = document.documentElement;
    let was = page.classList.contains(DARK);
    const observer = new MutationObserver(() => {
      const is = page.classList.contains(DARK);
      if (is !== was) call.current((was = is));
    });
    observer.observe(page, { attributeFilter: ['class'] });
    return () => observer.disconnect();
  }, []);
}

interface Props {
  /** What it shows, for those who do not see it. */
  label: string;
  option: EChartsCoreOption;
  height?: number;
  /** A click on a point or a line, by the `name` of its datum. */
  onChoose?: (name: string) => void;
}

export default function Chart({ label, option, height = 260, onChoose }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<ECharts | null>(null);
  const latest = useRef({ option, onChoose });
  latest.current = { option, onChoose };

  const draw = (isDark: boolean) => {
    if (place.current === null) return;
    chart.current?.dispose();
    const made = init(place.current, isDark ? 'dark' : null, { renderer: 'svg' });
    chart.current = made;
    made.on('click', (event) => {
      const { name } = event as { name?: unknown };
      if (typeof name === 'string') latest.current.onChoose?.(name);
    });
    made.setOption({ backgroundColor: 'transparent', animation: false, ...latest.current.option });
  };
  useIsDark(draw);

  useEffect(() => {
    draw(document.documentElement.classList.contains(DARK));
    const observer = new ResizeObserver(() => chart.current?.resize());
    if (place.current !== null) observer.observe(place.current);
    return () => {
      observer.disconnect();
      chart.current?.dispose();
      chart.current = null;
    };
  }, []);

  useEffect(() => {
    chart.current?.setOption({ backgroundColor: 'transparent', animation: false, ...option }, { notMerge: true });
  }, [option]);

  return <div ref={place} className="chart" role="img" aria-label={label} style={{ height }} />;
}
