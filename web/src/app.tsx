/** The frame of all pages. */

import {
  Button,
  Content,
  EmptyState,
  EmptyStateBody,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadMain,
  Nav,
  NavItem,
  NavList,
  Page,
  PageSection,
  PageSidebar,
  PageSidebarBody,
  PageToggleButton,
  SkipToContent,
  Spinner,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from '@patternfly/react-core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { Suspense, lazy, useEffect, useState } from 'react';
import { Link, Navigate, NavLink, Route, Routes, useLocation } from 'react-router';
import { JobsPage } from './jobs';
import { topics } from './topics';
import { SessionProvider, useSession } from './session';

const JobPage = lazy(() => import('./job'));
const SheetPage = lazy(() => import('./sheet'));
const SubmitPage = lazy(() => import('./submit'));

const client = new QueryClient({ defaultOptions: { queries: { retry: false, refetchOnWindowFocus: true } } });

const CONTENT = 'content';

/** Dark or light: what the system says, unless the user has chosen. */
function useTheme(): [boolean, (dark: boolean) => void] {
  const [isDark, setDark] = useState(() => {
    const kept = localStorage.getItem('trainyard-theme');
    return kept === null ? (window.matchMedia?.('(prefers-color-scheme: dark)').matches ?? false) : kept === 'dark';
  });
  useEffect(() => {
    document.documentElement.classList.toggle('pf-v6-theme-dark', isDark);
  }, [isDark]);
  return [
    isDark,
    (dark) => {
      localStorage.setItem('trainyard-theme', dark ? 'dark' : 'light');
      setDark(dark);
    },
  ];
}

function Header() {
  const { who, signOut } = useSession();
  const [isDark, setDark] = useTheme();
  return (
    <Masthead>
      <MastheadMain>
        <PageToggleButton isHamburgerButton aria-label="Navigation" />
        <MastheadBrand>
          <Content component="p">
            <Link to="/jobs">
              <strong>Trainyard</strong>
            </Link>
          </Content>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isStatic>
          <ToolbarContent>
            <ToolbarGroup align={{ default: 'alignEnd' }}>
              <ToolbarItem>
                <Content component="small">{who.user}</Content>
              </ToolbarItem>
              <ToolbarItem>
                <Button variant="plain" aria-pressed={isDark} onClick={() => setDark(!isDark)}>
                  {isDark ? 'Light theme' : 'Dark theme'}
                </Button>
              </ToolbarItem>
              <ToolbarItem>
                <Button variant="link" onClick={signOut}>
                  Sign out
                </Button>
              </ToolbarItem>
            </ToolbarGroup>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  );
}

function Sidebar() {
  const { pathname } = useLocation();
  return (
    <PageSidebar>
      <PageSidebarBody>
        <Nav aria-label="Pages">
          <NavList>
            <NavItem isActive={pathname.startsWith('/jobs')}>
              <NavLink to="/jobs">Jobs</NavLink>
            </NavItem>
            <NavItem isActive={pathname === '/submit'}>
              <NavLink to="/submit">New job</NavLink>
            </NavItem>
            {Object.entries(topics).map(([topic, title]) => (
              <NavItem key={topic} isActive={pathname.split('/')[1] === topic}>
                <NavLink to={`/${topic}`}>{title}</NavLink>
              </NavItem>
            ))}
          </NavList>
        </Nav>
      </PageSidebarBody>
    </PageSidebar>
  );
}

function NoSuchPage() {
  return (
    <PageSection>
      <EmptyState titleText="There is no such page" headingLevel="h1">
        <EmptyStateBody>
          <Link to="/jobs">All jobs</Link>
        </EmptyStateBody>
      </EmptyState>
    </PageSection>
  );
}

export function App() {
  return (
    <QueryClientProvider client={client}>
      <SessionProvider>
        <Page
          masthead={<Header />}
          sidebar={<Sidebar />}
          isManagedSidebar
          mainContainerId={CONTENT}
          skipToContent={<SkipToContent href={`#${CONTENT}`}>Skip to content</SkipToContent>}
        >
          <Suspense fallback={<Spinner aria-label="Loading" />}>
            <Routes>
              <Route path="/" element={<Navigate to="/jobs" replace />} />
              <Route path="/login" element={<Navigate to="/jobs" replace />} />
              <Route path="/jobs" element={<JobsPage />} />
              <Route path="/submit" element={<SubmitPage />} />
              <Route path="/jobs/:kind/:namespace/:name" element={<JobPage />} />
              {Object.keys(topics).map((topic) => (
                <Route key={topic} path={topic}>
                  <Route index element={<SheetPage key={topic} topic={topic} />} />
                  <Route path=":namespace/:name" element={<SheetPage key={`${topic} of one`} topic={topic} />} />
                </Route>
              ))}
              <Route path="*" element={<NoSuchPage />} />
            </Routes>
          </Suspense>
        </Page>
      </SessionProvider>
    </QueryClientProvider>
  );
}
